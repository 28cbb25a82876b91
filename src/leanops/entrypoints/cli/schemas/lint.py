"""Schema files: checked without a home, for people, programs and pull requests."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leanops.domain.errors import UsageError
from leanops.entrypoints.cli.exits import PROBLEMS
from leanops.entrypoints.cli.options import Json
from leanops.entrypoints.cli.output import counted, print_json_array, say

if TYPE_CHECKING:
    from leanops.domain.schema.lint import Finding

STDIN = "-"


class Format(StrEnum):
    """How problems are written."""

    TEXT = "text"
    GITHUB = "github"


Files = Annotated[list[Path], typer.Argument(metavar="FILE", help="Schema files; - is standard input.")]
Chosen = Annotated[Format, typer.Option("--format", help="text, or github for annotations of a pull request.")]


def lint(files: Files, form: Chosen = Format.TEXT, as_json: Json = False) -> None:
    """Check schema files: every problem with its line, its place and what to do. Exit code 3 if there are any."""
    from leanops.domain.schema.lint import lint as lint_files

    if as_json and form != Format.TEXT:
        raise UsageError("--json and --format github exclude each other; choose one")
    texts = {str(file): _read(file) for file in files}
    found = lint_files(texts)
    if as_json:
        print_json_array(found)
    else:
        for finding in found:
            say(_annotation(finding) if form == Format.GITHUB else _line(finding))
        say(_summary(found, len(texts)))
    if found:
        raise typer.Exit(PROBLEMS)


def _read(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == STDIN else file.read_bytes()
    except OSError as missing:
        raise UsageError(f"{file} cannot be read: {(missing.strerror or 'no such file').lower()}") from None


def _line(finding: "Finding") -> str:
    return f"{finding.file}:{finding.line}: {finding.problem.code} {finding.problem}"


def _annotation(finding: "Finding") -> str:
    """A command of GitHub's workflow log, which shows it at the line."""
    file, title = (
        _escaped(text).replace(":", "%3A").replace(",", "%2C") for text in (finding.file, finding.problem.code)
    )
    return f"::error file={file},line={finding.line},title={title}::{_escaped(str(finding.problem))}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _summary(found: list["Finding"], files: int) -> str:
    if not found:
        return f"{counted(files, 'file')}, no problems"
    broken = len({finding.file for finding in found})
    return f"{counted(len(found), 'problem')} in {broken:,} of {counted(files, 'file')}"
