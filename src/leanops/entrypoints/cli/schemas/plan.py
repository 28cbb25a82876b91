"""A schema file tried on the rows of its topic."""

from pathlib import Path
from typing import Annotated

import typer

from leanops.domain.errors import UsageError
from leanops.entrypoints.cli.home import opened
from leanops.entrypoints.cli.input import read_schema
from leanops.entrypoints.cli.options import PROBLEMS, Json, Topic
from leanops.entrypoints.cli.output import print_json, say
from leanops.entrypoints.cli.progress import waiting

SchemaFile = Annotated[Path, typer.Argument(metavar="FILE", help="The schema file.")]
Sample = Annotated[int | None, typer.Option("--sample", min=1, help="Try it on about this many rows.")]
All = Annotated[bool, typer.Option("--all", help="Try it on all rows; by default on at most 1,000,000.")]
Values = Annotated[bool, typer.Option("--values", help="Show values of rows that fail, except PII.")]


def plan(
    topic: Topic,
    file: SchemaFile,
    sample: Sample = None,
    every: All = False,
    values: Values = False,
    as_json: Json = False,
) -> None:
    """Show what a file would change and do to real rows. The exit code is 3 if it cannot be deployed as it is."""
    if sample and every:
        raise UsageError("choose either --sample N or --all")
    text = read_schema(file)
    with opened(topic) as runtime, waiting(f"{topic}: starting Spark") as update:
        from leanops.domain.schema.model import schema_from_json
        from leanops.usecases.schemas.plan import ALL, plan_schema

        schema = schema_from_json(text, str(file))
        result = plan_schema(
            runtime.platform,
            topic,
            schema,
            sample=None if every else sample or ALL,
            tell=lambda step: update(f"{topic}: {step}"),
        )
    result = result if values else result.without_values()
    if as_json:
        print_json(result)
    else:
        from leanops.views.schemas import plan_lines

        say(f"{topic}: {result.difference.kind.value}")
        for line in plan_lines(result):
            say(f"  {line}" if line else "")
    if not result.is_safe:
        raise typer.Exit(PROBLEMS)
