"""Gives commands one after the other in one process, so that they share a Java: words in, how it ended out."""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout

from leanops.entrypoints.cli.app import run


def main() -> None:
    for line in sys.stdin:
        # Commands print text and bytes, as to a pipe.
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        with redirect_stdout(out), redirect_stderr(err):
            code = run(json.loads(line))
        said = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
        sys.stdout.write(json.dumps([code, *said]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
