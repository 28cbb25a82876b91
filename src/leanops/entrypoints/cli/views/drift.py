"""Changes in the events of topics and in their tables."""

from datetime import timedelta
from typing import Annotated

import typer

from leanops.domain.words import counted
from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.options import Json
from leanops.entrypoints.cli.output import print_json_array, print_table, say, to_second

DAYS = 30
OneTopic = Annotated[str | None, typer.Argument(metavar="TOPIC", help="Only this topic; all if left out.")]
Since = Annotated[int, typer.Option("--since", min=1, max=100_000, metavar="DAYS", help="How many days to look back.")]


def drift(topic: OneTopic = None, since: Since = DAYS, as_json: Json = False) -> None:
    """List columns that were added, stopped arriving or changed their kind, newest first."""
    with opened(topic) as runtime:
        from leanops.views.drift import list_drift, sentence

        after = runtime.platform.clock() - timedelta(days=since)
        changes = list_drift(runtime.sources(), topic=topic, after=after)
    if as_json:
        print_json_array(changes)
        return
    rows = [[to_second(row["detected_ts"]), row["topic_name"], row["source_layer"], sentence(row)] for row in changes]
    if rows:
        print_table(("detected", "topic", "layer", "what"), rows)
    say(f"{counted(len(changes), 'change')} in {counted(since, 'day')}; look further back with --since")
