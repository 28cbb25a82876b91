"""A first schema from the events of a topic."""

from typing import TYPE_CHECKING, Annotated

import typer

from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.options import Json, Topic
from leanops.entrypoints.cli.output import print_json, print_table, say
from leanops.entrypoints.cli.progress import waiting

if TYPE_CHECKING:
    from leanops.usecases.schemas.infer import Inferred

Force = Annotated[bool, typer.Option("--force", help="Replace a draft that says something else.")]
Sample = Annotated[int, typer.Option("--sample", min=1, help="Look at about so many events.")]


def infer(topic: Topic, sample: Sample = 100_000, force: Force = False, as_json: Json = False) -> None:
    """Propose a schema from what is in RAW, written as a draft to look at and deploy."""
    with opened() as runtime, waiting(f"{topic}: looking at its events"):
        from leanops.usecases.schemas.infer import infer_schema
        from leanops.usecases.topics.registry import find_topic

        find_topic(runtime.platform, topic)
        found = infer_schema(runtime.platform, runtime.lake(), topic, sample=sample)
        name = runtime.platform.schemas.draft(topic, found.text, replace=force)
        path = runtime.platform.schemas.place(topic, name)
    if as_json:
        print_json({**found.as_json(), "file": path})
    else:
        _show(found, path)


def _show(found: "Inferred", path: str) -> None:
    seen = "a sample of " if found.is_sample else "all "
    say(f"{found.topic}: {seen}{found.rows:,} rows of RAW, {found.events:,} of them events\n")
    rows = [[one.name, one.path, str(one.type), "yes" if one.cde else "", one.pii, one.reason] for one in found.columns]
    print_table(("column", "path", "type", "CDE", "PII", "what was seen"), rows)
    say("")
    for name, where in found.keys.items():
        say(f"keys.{name}: {where}")
    for line in found.notes:
        say(line)
    if found.never_filled:
        say(f"left out, for they were only ever null: {', '.join(found.never_filled)}")
    say(f"\nwritten to {path}; look at it, then:")
    say(f"  leanops schema plan {found.topic} {path}")
    say(f"  leanops schema deploy {found.topic} {path}")
