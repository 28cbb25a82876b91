"""The one question before anything is changed."""

import sys

import typer

from leanops.domain.errors import UsageError
from leanops.entrypoints.cli.options import FAILED
from leanops.entrypoints.cli.output import note


def confirm(question: str, consequence: str, *, yes: bool) -> None:
    """Ask a person, unless --yes was given; "no" ends the command with exit code 1."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{consequence}; confirm with --yes")
    if not typer.confirm(question, err=True):
        note("nothing was changed")
        raise typer.Exit(FAILED)
