"""Queries over the tables."""

from itertools import islice
from typing import Annotated

import typer

from leanops.domain.words import counted
from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.options import Json
from leanops.entrypoints.cli.output import print_json_array, print_table, say
from leanops.entrypoints.cli.progress import waiting

Statement = Annotated[str, typer.Argument(metavar='"SELECT …"', help="One SELECT; tables by their full names.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Rows to print as text; --json always prints all.")]


def sql(statement: Statement, as_json: Json = False, limit: Limit = 100) -> None:
    """Query the tables, read-only: DuckDB over Iceberg, without Spark. "show tables" lists them."""
    with opened() as runtime:
        answer = runtime.sources().query.ask(statement)
        if as_json:
            print_json_array(answer.as_dicts())
            return
        with waiting("reading"):
            rows = list(islice(answer.rows, limit + 1))
    print_table(answer.columns, rows[:limit])
    say(f"the first {limit:,} rows; more with --limit or --json" if len(rows) > limit else counted(len(rows), "row"))
