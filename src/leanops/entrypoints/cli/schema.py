"""Schemas: deployed and shown."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leanops.domain.errors import UsageError
from leanops.entrypoints.cli.homes import actor, opened
from leanops.entrypoints.cli.options import Json, Topic, Yes
from leanops.entrypoints.cli.output import note, print_json, print_table, say

if TYPE_CHECKING:
    from leanops.domain.schema import Schema
    from leanops.usecases.platform import Platform

app = typer.Typer(no_args_is_help=True)
SchemaFile = Annotated[Path, typer.Argument(metavar="FILE", help="The schema file.")]


@app.command()
def deploy(topic: Topic, file: SchemaFile, yes: Yes = False) -> None:
    """Make a file the active schema of a topic. Shows what changes and asks first."""
    text = _read(file)
    with opened() as runtime:
        from leanops.usecases.audit import record_action
        from leanops.usecases.deploy_schema import deploy_schema
        from leanops.usecases.topics import find_topic

        platform = runtime.platform
        find_topic(platform, topic)
        if not _agreed(platform, topic, text, str(file), yes):
            raise typer.Exit(1)
        who = actor()
        schema, is_new = deploy_schema(platform, topic, text, str(file), who.name)
        if is_new:
            record_action(platform, who, "schema deploy", [topic], {"version": schema.version, "file": str(file)})
    name = runtime.platform.rules.databases.curated_table(schema.table_name)
    state = "is active" if is_new else "is active already; nothing changed"
    say(f"{topic}: schema version {schema.version} {state}; Curated is {name}")


@app.command()
def show(topic: Topic, as_json: Json = False) -> None:
    """Show the active schema of a topic."""
    with opened() as runtime:
        from leanops.usecases.topics import find_topic

        find_topic(runtime.platform, topic)
        schema = runtime.platform.schemas.active(topic)
    if schema is None:
        raise UsageError(f"topic {topic!r} has no schema; deploy one with: leanops schema deploy {topic} FILE")
    if as_json:
        print_json(json.loads(schema.model_dump_json(exclude_unset=True)))
    else:
        _print(topic, schema)


def _print(topic: str, schema: "Schema") -> None:
    from leanops.views.schemas import rules_of

    owner = f", owned by {schema.owner}" if schema.owner else ""
    say(f"{topic}: version {schema.version}{owner}; Curated table {schema.table_name}")
    rows = [
        [one.name, one.path, str(one.type), "yes" if one.cde else "", one.pii, rules_of(one)]
        for one in schema.payload_columns
    ]
    print_table(("column", "path", "type", "CDE", "PII", "default and rules"), rows)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as missing:
        raise UsageError(f"{file} cannot be read: {(missing.strerror or 'no such file').lower()}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8; convert it first") from None


def _agreed(platform: "Platform", topic: str, text: str, file: str, yes: bool) -> bool:
    """Whether to go ahead: nothing would change, or someone said yes."""
    from leanops.domain.schema import schema_from_json
    from leanops.views.schemas import changes

    lines = changes(platform.schemas.active(topic), schema_from_json(text, file))
    for line in lines:
        note(f"  {line}")
    if yes or not lines:
        return True
    if not sys.stdin.isatty():
        raise UsageError(f"deploying changes topic {topic!r}; confirm with --yes")
    return typer.confirm(f"Deploy this to {topic}?", err=True)
