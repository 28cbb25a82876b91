"""Arguments and options that several commands share."""

from typing import TYPE_CHECKING, Annotated

import typer

from leanops.domain.errors import UsageError

if TYPE_CHECKING:
    from leanops.domain.table.operation import Accepted

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Go ahead without asking.")]
AcceptMissing = Annotated[
    str | None,
    typer.Option(
        "--accept-missing", metavar="all|N", help="Let all keys, or at most N, leave Curated; without it none may."
    ),
]


def accepted(said: str | None) -> "Accepted":
    """What `--accept-missing` lets go; nothing where it is left out."""
    from leanops.domain.table.operation import Accept

    if said is None:
        return 0
    if said == "all":
        return Accept.ALL
    if said.isascii() and said.isdigit():
        return int(said)
    raise UsageError(f"--accept-missing takes all, or how many keys may leave Curated at most; {said!r} is neither")
