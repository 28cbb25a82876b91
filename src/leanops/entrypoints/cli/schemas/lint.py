"""Schema files checked without a home, for people, programs and pull requests."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from leanops.domain.errors import UsageError
from leanops.domain.words import counted
from leanops.entrypoints.cli.input import readable
from leanops.entrypoints.cli.options import PROBLEMS, Json
from leanops.entrypoints.cli.output import print_json_array, say

if TYPE_CHECKING:
    from leanops.domain.schema.lint import Finding

STDIN = "-"


Files = Annotated[list[Path], typer.Argument(metavar="FILE", help="Schema files; - is standard input.")]
Format = Annotated[
    Literal["text", "github"], typer.Option("--format", help="text, or github for annotations of a pull request.")
]


def lint(files: Files, form: Format = "text", as_json: Json = False) -> None:
    """Check schema files: every problem with its line, place and fix. The exit code is 3 if there are any."""
    from leanops.domain.schema.lint import lint as lint_files

    if as_json and form != "text":
        raise UsageError("choose either --json or --format github")
    texts = {str(file): _read(file) for file in files}
    findings = lint_files(texts)
    if as_json:
        print_json_array(findings)
    else:
        for finding in findings:
            say(_annotation(finding) if form == "github" else _line(finding))
        say(_summary(findings, len(texts)))
    if findings:
        raise typer.Exit(PROBLEMS)


def _read(file: Path) -> bytes:
    with readable(file):
        return sys.stdin.buffer.read() if str(file) == STDIN else file.read_bytes()


def _line(finding: "Finding") -> str:
    return f"{finding.file}:{finding.line}: {finding.problem.code} {finding.problem}"


def _annotation(finding: "Finding") -> str:
    """A workflow command, which GitHub shows at the line."""
    file, title = (
        _escaped(text).replace(":", "%3A").replace(",", "%2C") for text in (finding.file, finding.problem.code)
    )
    return f"::error file={file},line={finding.line},title={title}::{_escaped(str(finding.problem))}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _summary(findings: list["Finding"], files: int) -> str:
    if not findings:
        return f"{counted(files, 'file')}, no problems"
    broken = len({finding.file for finding in findings})
    return f"{counted(len(findings), 'problem')} in {broken:,} of {counted(files, 'file')}"
