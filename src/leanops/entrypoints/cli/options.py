"""Arguments, options and exit codes that several commands share."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leanops.domain.errors import UsageError

if TYPE_CHECKING:
    from leanops.domain.table.operation import Accepted

DONE, FAILED, USAGE, PROBLEMS, INTERRUPTED = 0, 1, 2, 3, 130

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")]
Project = Annotated[
    str | None,
    typer.Option("--project", envvar="GOOGLE_CLOUD_PROJECT", help="Google project; or set GOOGLE_CLOUD_PROJECT."),
]
AcceptMissing = Annotated[
    str | None,
    typer.Option(
        "--accept-missing", metavar="all|N", help="Allow all keys, or at most N, to leave Curated; none if left out."
    ),
]


def required(project: str | None) -> str:
    """The Google project; raises UsageError if there is none."""
    if not project:
        raise UsageError("no Google project; give --project PROJECT, or set GOOGLE_CLOUD_PROJECT")
    return project


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of its first parameter `options`, a dataclass."""
    signature = inspect.signature(command)
    group = signature.parameters["options"].annotation
    _, *others = signature.parameters.values()

    @wraps(command)
    def run(**values: Any) -> None:
        command(group(**{field.name: values.pop(field.name) for field in fields(group)}), **values)

    every = [*others, *inspect.signature(group).parameters.values()]
    run.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
    return run


def accepted(text: str | None) -> "Accepted":
    """How many keys `--accept-missing` allows to leave Curated."""
    from leanops.domain.table.operation import Accept

    if text is None:
        return 0
    if text == "all":
        return Accept.ALL
    if text.isascii() and text.isdigit():
        return int(text)
    raise UsageError(f"--accept-missing takes all or a number of keys, not {text!r}")
