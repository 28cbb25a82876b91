"""A process whose Java is killed in the middle of a cycle: prints what became of every cycle."""

import json
import os
import signal
import sys
from pathlib import Path

from leanops.domain.table.batch import STANDARDIZED
from leanops.runtimes.embedded import Embedded
from leanops.usecases.cycle.run import run_cycle
from leanops.usecases.schemas.deploy import deploy_schema
from leanops.usecases.topics.registry import add_topic
from tests.support.builders import event, land, schema_text


def main() -> None:
    os.umask(0o077)
    deadly: set[str] = set()

    def step(name: str) -> None:
        if name in deadly:
            deadly.clear()
            os.kill(runtime.spark().sparkContext._gateway.proc.pid, signal.SIGKILL)

    runtime = Embedded(Path(sys.argv[1]), step=step)
    host, number, start = runtime.platform.processes.mark.split("-")
    for left in (f"{host}-{number}-{int(start) - 1}", "of-nobody-known"):
        (runtime.home / "scratch" / left / "blockmgr").mkdir(parents=True)
    add_topic(runtime.platform, "orders")
    deploy_schema(runtime.platform, "orders", schema_text(), "schema.json")
    cycles = []
    for number in range(3):
        land(runtime.platform, "orders", [event(f"m{number}"), event(f"broken{number}", "{")])
        if number == 1:
            deadly.add("after intent")
        (result,) = run_cycle(runtime.platform, force=True)
        read = result.layers[STANDARDIZED].counts["read"] if result.layers else 0
        cycles.append([result.outcome.value, result.reason, read])
    scratch = [path.name for path in (runtime.home / "scratch").iterdir()]
    sys.stdout.write(json.dumps({"cycles": cycles, "own": runtime.scratch.name, "scratch": scratch}))
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
