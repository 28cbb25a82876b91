"""Schemas: deploy, show, diff, history, rollback."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leanops.domain.errors import InvalidSchemaError, UsageError
from leanops.domain.words import counted
from leanops.entrypoints.cli.home import note_wait, opened
from leanops.entrypoints.cli.input import confirm, read_schema
from leanops.entrypoints.cli.options import AcceptMissing, Json, Topic, Yes, accepted, with_options
from leanops.entrypoints.cli.output import note, print_json, print_json_array, print_table, say, to_second
from leanops.entrypoints.cli.progress import rebuilding, waiting
from leanops.entrypoints.cli.schemas import infer, plan
from leanops.entrypoints.cli.schemas.plan import SchemaFile

if TYPE_CHECKING:
    from leanops.domain.schema.diff import Difference
    from leanops.domain.schema.model import Schema
    from leanops.domain.schema.plan import SchemaPlan
    from leanops.runtimes.runtime import Runtime
    from leanops.usecases.platform import Platform
    from leanops.usecases.schemas.deploy import Consent, Deployed

app = typer.Typer(no_args_is_help=True)
app.command("infer")(infer.infer)
app.command("plan")(plan.plan)
OtherFile = Annotated[Path | None, typer.Argument(metavar="FILE", help="A file to compare with the active schema.")]
From = Annotated[int | None, typer.Option("--from", min=1, help="The older version; the one before --to if left out.")]
To = Annotated[int | None, typer.Option("--to", min=1, help="The newer version; the active one if left out.")]
Version = Annotated[int, typer.Option("--to", min=1, help="The version to deploy again.")]
Rebuild = Annotated[bool, typer.Option("--rebuild", help="Allow a breaking change to rebuild the tables from RAW.")]
Recurate = Annotated[
    bool | None,
    typer.Option(
        "--recurate/--no-recurate",
        help="Apply the schema to existing rows too; by default only if it is additive and no row would leave Curated.",
    ),
]
AcceptUnseen = Annotated[
    bool, typer.Option("--accept-unseen", help="Accept a key, version or period path that no event has yet.")
]


@dataclass(frozen=True)
class Options:
    """What the user agrees to, and how to report it."""

    yes: Yes = False
    rebuild: Rebuild = False
    recurate: Recurate = None
    accept_missing: AcceptMissing = None
    accept_unseen: AcceptUnseen = False
    as_json: Json = False

    @property
    def consent(self) -> "Consent":
        from leanops.usecases.schemas.deploy import Consent

        return Consent(self.rebuild, self.recurate, accepted(self.accept_missing))


@dataclass(frozen=True)
class _Request:
    """A schema to deploy, and what the user agrees to."""

    topic: str
    text: str
    source: str
    action: str
    options: Options

    @property
    def trial(self) -> str:
        """How to try a file on rows; an earlier version was tried when it was a file."""
        is_file = self.action == "schema deploy"
        return f"try it with: leanops schema plan {self.topic} {self.source}, and " if is_file else ""


@app.command()
@with_options
def deploy(options: Options, topic: Topic, file: SchemaFile) -> None:
    """Make a file the active schema of a topic. Shows the plan and asks first."""
    text = read_schema(file)
    with opened(topic) as runtime:
        _deploy(runtime, _Request(topic, text, str(file), "schema deploy", options))
        if str(file.resolve()) == runtime.platform.schemas.place(topic, file.name):
            runtime.platform.schemas.withdraw(topic, file.name, text.encode())


@app.command()
@with_options
def rollback(options: Options, topic: Topic, to: Version) -> None:
    """Deploy an earlier schema of a topic again, as a new version. Shows the plan and asks first."""
    with opened(topic) as runtime:
        text = _archived(runtime.platform, topic, to)
        _deploy(runtime, _Request(topic, text, f"version {to}", "schema rollback", options))


@app.command()
def show(topic: Topic, as_json: Json = False) -> None:
    """Show the active schema of a topic."""
    with opened(topic) as runtime:
        from leanops.views.schemas import rules_of

        schema = _active(runtime.platform, topic)
    if as_json:
        print_json(json.loads(schema.model_dump_json(exclude_unset=True)))
        return
    owner = f", owned by {schema.owner}" if schema.owner else ""
    say(f"{topic}: version {schema.version}{owner}; Curated table {schema.table_name}")
    rows = [[c.name, c.path, str(c.type), "yes" if c.cde else "", c.pii, rules_of(c)] for c in schema.payload_columns]
    print_table(("column", "path", "type", "CDE", "PII", "default and rules"), rows)


@app.command()
def diff(topic: Topic, file: OtherFile = None, from_: From = None, to: To = None, as_json: Json = False) -> None:
    """Compare the active schema with a file, or two versions; the last two if none is given."""
    if file and (from_ or to):
        raise UsageError("give a file or versions, not both")
    with opened(topic) as runtime:
        from leanops.domain.schema.diff import difference
        from leanops.domain.schema.model import schema_from_json
        from leanops.views.schemas import difference_lines

        platform = runtime.platform
        if file:
            before, after = _active(platform, topic), schema_from_json(read_schema(file), str(file))
            name = str(file)
        else:
            after = _version(platform, topic, to) if to else _active(platform, topic)
            before = _version(platform, topic, from_ or _earlier(platform, topic, after.version))
            name = f"version {after.version}"
        changes = difference(before, after)
    if as_json:
        print_json({"topic": topic, "from": f"version {before.version}", "to": name, **changes.as_json()})
        return
    say(f"{topic}: version {before.version} → {name}: {changes.kind.value}")
    for line in difference_lines(changes):
        say(f"  {line}")


@app.command()
def history(topic: Topic, as_json: Json = False) -> None:
    """List the schema versions of a topic: when and by whom they were activated, and what kind of change they are."""
    with opened(topic) as runtime:
        from leanops.views.schemas import schema_versions

        versions = schema_versions(runtime.sources(), topic)
    if as_json:
        print_json_array(versions)
        return
    if not versions:
        say(f"{topic} has no schema; deploy one with: leanops schema deploy {topic} FILE")
        return
    columns = ("actor", "classification", "fingerprint")
    rows = [
        [row["version"], to_second(row["activated_ts"]), *map(row.get, columns), "active" if row["active"] else ""]
        for row in versions
    ]
    print_table(("version", "activated", "by", "change", "fingerprint", ""), rows)


def _deploy(runtime: "Runtime", request: _Request) -> None:
    """Show what would change, ask, deploy, and report."""
    from leanops.usecases.schemas.deploy import deploy_schema

    platform, topic = runtime.platform, request.topic
    consent = request.options.consent
    plan = _agreed_plan(platform, request, consent)
    note_wait(runtime, topic)
    with rebuilding(topic) as progress:
        deployed = deploy_schema(
            platform, topic, request.text, request.source, consent, plan, progress, action=request.action
        )
    platform.schemas.clear_failed(topic)
    _report(platform, request, deployed, plan)


def _agreed_plan(platform: "Platform", request: _Request, consent: "Consent") -> "SchemaPlan | None":
    """The plan, None if no rows have to be tried; ends the command if the user does not agree."""
    from leanops.domain.schema.diff import difference
    from leanops.domain.schema.model import schema_from_json
    from leanops.usecases.schemas.plan_gate import gate
    from leanops.views.schemas import difference_lines, plan_lines

    topic, options = request.topic, request.options
    new = schema_from_json(request.text, request.source)
    changes = difference(platform.schemas.active(topic), new)
    if not changes.changes and not options.recurate:
        return None
    _check_allowed(request, new, changes)
    with waiting("trying it on rows"):
        tried = gate(platform, topic, new, changes, consent, accept_unseen=options.accept_unseen, is_shown=True)
    for line in plan_lines(tried.plan.without_values()) if tried.plan else difference_lines(changes):
        note(f"  {line}")
    if tried.problems:
        raise InvalidSchemaError(request.source, tried.problems)
    if tried.leaving:
        leaving = counted(tried.leaving, "key")
        raise UsageError(f"{leaving} would leave Curated; allow it with --accept-missing {tried.leaving}")
    confirm(f"Deploy this to {topic}?", f"this changes topic {topic!r}", yes=options.yes)
    return tried.plan


def _check_allowed(request: _Request, new: "Schema", changes: "Difference") -> None:
    """Refuse what need not be tried on rows."""
    from leanops.usecases.schemas.validate import breaking_problems
    from leanops.views.schemas import difference_lines

    refusal = None
    if not request.options.rebuild and any(breaking_problems(new, changes)):
        allow = 'rebuild the tables with --rebuild, or set policies.on_breaking to "rebuild"'
        refusal = f"this is a breaking change for {request.topic}; {allow}"
    elif not request.options.yes and not sys.stdin.isatty():
        refusal = f"this changes topic {request.topic!r}; {request.trial}confirm with --yes"
    if refusal:
        for line in difference_lines(changes):
            note(f"  {line}")
        raise UsageError(refusal)


def _report(platform: "Platform", request: _Request, deployed: "Deployed", plan: "SchemaPlan | None") -> None:
    schema, table = deployed.schema, platform.rules.databases.curated_table(deployed.schema.table_name)
    if request.options.as_json:
        result = {"topic": request.topic, "version": schema.version, "is_new": deployed.is_new, "curated": table}
        print_json({**result, "rebuilt": deployed.scope.value, "plan": plan})
        return
    unchanged = "" if deployed.is_new else "; nothing changed"
    rebuilt = {"curated": "; Curated was rebuilt", "both": "; Standardized and Curated were rebuilt"}
    state = f"is {'' if deployed.is_new else 'already '}active{rebuilt.get(deployed.scope, unchanged)}"
    say(f"{request.topic}: schema version {schema.version} {state}; Curated is {table}")


def _active(platform: "Platform", topic: str) -> "Schema":
    schema = platform.schemas.active(topic)
    if schema is None:
        raise UsageError(f"topic {topic!r} has no schema; deploy one with: leanops schema deploy {topic} FILE")
    return schema


def _version(platform: "Platform", topic: str, version: int) -> "Schema":
    from leanops.domain.schema.model import schema_from_json

    return schema_from_json(_archived(platform, topic, version), f"version {version}", is_kept=True)


def _archived(platform: "Platform", topic: str, version: int) -> str:
    text = platform.schemas.text(topic, version)
    if text is None:
        raise UsageError(f"topic {topic!r} has no schema version {version}; see: leanops schema history {topic}")
    return text


def _earlier(platform: "Platform", topic: str, version: int) -> int:
    earlier = [number for number in platform.schemas.versions(topic) if number < version]
    if not earlier:
        raise UsageError(f"version {version} is the first schema of topic {topic!r}; there is none to compare it with")
    return earlier[-1]
