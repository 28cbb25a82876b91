"""A first schema, proposed from the events of a topic."""

from typing import Annotated

import typer

from leanops.domain.words import counted
from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.options import Json, Topic
from leanops.entrypoints.cli.output import print_json, print_table, say
from leanops.entrypoints.cli.progress import waiting

Force = Annotated[bool, typer.Option("--force", help="Replace a draft that differs.")]
Sample = Annotated[int, typer.Option("--sample", min=1, help="Look at about this many events.")]


def infer(topic: Topic, sample: Sample = 100_000, force: Force = False, as_json: Json = False) -> None:
    """Propose a schema from the events in RAW, written as a draft to review and deploy."""
    with opened(topic) as runtime, waiting(f"{topic}: reading its events"):
        from leanops.usecases.schemas.infer import infer_schema

        inferred = infer_schema(runtime.platform, topic, sample=sample)
        name = runtime.platform.schemas.draft(topic, inferred.text, replace=force)
        path = runtime.platform.schemas.place(topic, name)
    if as_json:
        print_json({**inferred.as_json(), "file": path})
        return
    rows = f"{'a sample of ' if inferred.is_sample else 'all '}{counted(inferred.rows, 'row')}"
    say(f"{topic}: {rows} of RAW, {inferred.events:,} of them events\n")
    columns = [[c.name, c.path, str(c.type), "yes" if c.cde else "", c.pii, c.reason] for c in inferred.columns]
    print_table(("column", "path", "type", "CDE", "PII", "what was seen"), columns)
    say("")
    for name, where in inferred.keys.items():
        say(f"keys.{name}: {where}")
    for line in inferred.notes:
        say(line)
    if inferred.never_filled:
        say(f"left out because they were always null: {', '.join(inferred.never_filled)}")
    say(f"\nwritten to {path}; review it, then:")
    say(f"  leanops schema plan {topic} {path}")
    say(f"  leanops schema deploy {topic} {path}")
