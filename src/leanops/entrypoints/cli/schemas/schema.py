"""Schemas: deployed, shown, compared, and taken back."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leanops.domain.errors import InvalidSchemaError, UsageError
from leanops.entrypoints.cli.confirm import confirm
from leanops.entrypoints.cli.home import opened, tell_wait
from leanops.entrypoints.cli.options import AcceptMissing, Json, Topic, Yes, accepted
from leanops.entrypoints.cli.output import counted, note, print_json, print_json_array, print_table, say
from leanops.entrypoints.cli.progress import rows_of, waiting
from leanops.entrypoints.cli.schemas import infer, plan
from leanops.entrypoints.cli.schemas.files import read_schema

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
SchemaFile = Annotated[Path, typer.Argument(metavar="FILE", help="The schema file.")]
OtherFile = Annotated[Path | None, typer.Argument(metavar="FILE", help="A file to compare with the active schema.")]
From = Annotated[int | None, typer.Option("--from", min=1, help="A version; the one before the other if left out.")]
To = Annotated[int | None, typer.Option("--to", min=1, help="A version; the active one if left out.")]
Version = Annotated[int, typer.Option("--to", min=1, help="The version to go back to.")]
Rebuild = Annotated[bool, typer.Option("--rebuild", help="Let a breaking change make the tables anew from RAW.")]
Recurate = Annotated[
    bool | None,
    typer.Option(
        "--recurate/--no-recurate",
        help="Apply it to old rows, or not; if left out, an additive one is where no row would leave Curated.",
    ),
]

AcceptUnseen = Annotated[
    bool, typer.Option("--accept-unseen", help="Take a path of key, version or period that no event has yet.")
]


@dataclass(frozen=True)
class _Wish:
    """What someone wants deployed, and what they have agreed to."""

    topic: str
    text: str
    source: str
    action: str
    yes: bool
    as_json: bool
    consent: "Consent"
    accept_unseen: bool = False


@app.command()
def deploy(
    topic: Topic,
    file: SchemaFile,
    yes: Yes = False,
    rebuild: Rebuild = False,
    recurate: Recurate = None,
    accept_missing: AcceptMissing = None,
    accept_unseen: AcceptUnseen = False,
    as_json: Json = False,
) -> None:
    """Make a file the active schema of a topic. Shows the plan and asks first."""
    text = read_schema(file)
    with opened() as runtime:
        consent = _consent(rebuild, recurate, accept_missing)
        _go_live(runtime, _Wish(topic, text, str(file), "schema deploy", yes, as_json, consent, accept_unseen))
        if str(file.resolve()) == runtime.platform.schemas.place(topic, file.name):
            runtime.platform.schemas.withdraw(topic, file.name, text.encode())


@app.command()
def rollback(
    topic: Topic,
    to: Version,
    yes: Yes = False,
    rebuild: Rebuild = False,
    recurate: Recurate = None,
    accept_missing: AcceptMissing = None,
    accept_unseen: AcceptUnseen = False,
    as_json: Json = False,
) -> None:
    """Deploy an earlier schema of a topic again, as a new version. Shows the plan and asks first."""
    with opened() as runtime:
        text = _archived(runtime.platform, topic, to)
        consent = _consent(rebuild, recurate, accept_missing)
        _go_live(runtime, _Wish(topic, text, f"version {to}", "schema rollback", yes, as_json, consent, accept_unseen))


@app.command()
def show(topic: Topic, as_json: Json = False) -> None:
    """Show the active schema of a topic."""
    with opened() as runtime:
        schema = _active(runtime.platform, topic)
    if as_json:
        print_json(json.loads(schema.model_dump_json(exclude_unset=True)))
    else:
        _print(topic, schema)


@app.command()
def diff(topic: Topic, file: OtherFile = None, from_: From = None, to: To = None, as_json: Json = False) -> None:
    """Compare the active schema with a file, or two versions; the last two if none is named."""
    if file and (from_ or to):
        raise UsageError("name a file or versions, not both")
    with opened() as runtime:
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
        found = difference(before, after)
    if as_json:
        print_json({"topic": topic, "from": f"version {before.version}", "to": name, **found.as_json()})
        return
    say(f"{topic}: version {before.version} → {name}: {found.kind.value}")
    for line in difference_lines(found):
        say(f"  {line}")


@app.command()
def history(topic: Topic, as_json: Json = False) -> None:
    """List the schema versions of a topic: when, by whom, and what kind of change."""
    with opened() as runtime:
        from leanops.usecases.topics.registry import find_topic
        from leanops.views.schemas import schema_versions

        find_topic(runtime.platform, topic)
        found = schema_versions(runtime.sources(), topic)
    if as_json:
        print_json_array(found)
        return
    if not found:
        say(f"{topic} has no schema; deploy one with: leanops schema deploy {topic} FILE")
        return
    rows = [
        [
            row["version"],
            row["activated_ts"].replace(microsecond=0),
            row["actor"],
            row["classification"],
            row["fingerprint"],
            "active" if row["active"] else "",
        ]
        for row in found
    ]
    print_table(("version", "activated", "by", "change", "fingerprint", ""), rows)


def _consent(rebuild: bool, recurate: bool | None, accept_missing: str | None) -> "Consent":
    from leanops.usecases.schemas.deploy import Consent

    return Consent(rebuild, recurate, accepted(accept_missing))


def _go_live(runtime: "Runtime", wish: _Wish) -> None:
    """Show what would change, ask, deploy, and say what was done."""
    from leanops.usecases.schemas.deploy import deploy_schema

    platform, topic = runtime.platform, wish.topic
    plan = _agreed_plan(platform, wish)
    tell_wait(runtime, topic)
    with rows_of(0) as bar:
        deployed = deploy_schema(
            platform,
            topic,
            wish.text,
            wish.source,
            wish.consent,
            plan,
            lambda what, done, rows: bar(done, f"{what}, of {rows:,} rows"),
            action=wish.action,
        )
    platform.schemas.clear_failed(topic)
    _report(platform, wish, deployed, plan)


def _agreed_plan(platform: "Platform", wish: _Wish) -> "SchemaPlan | None":
    """What rows say to the schema, as far as they have to be asked; ends the command where someone says no."""
    from leanops.domain.schema.diff import difference
    from leanops.domain.schema.model import schema_from_json
    from leanops.usecases.schemas.plan_gate import gate
    from leanops.usecases.topics.registry import find_topic
    from leanops.views.schemas import difference_lines, plan_lines

    find_topic(platform, wish.topic)
    new = schema_from_json(wish.text, wish.source)
    found = difference(platform.schemas.active(wish.topic), new)
    if not found.changes and not wish.consent.recurate:
        return None
    _check_allowed(wish, new, found)
    with waiting("trying it on rows"):
        tried = gate(platform, wish.topic, new, found, wish.consent, accept_unseen=wish.accept_unseen, is_shown=True)
    for line in plan_lines(tried.plan.without_values()) if tried.plan else difference_lines(found):
        note(f"  {line}")
    if tried.problems:
        raise InvalidSchemaError(wish.source, tried.problems)
    if tried.leaving:
        them = "it" if tried.leaving == 1 else "them"
        what = counted(tried.leaving, "key")
        raise UsageError(f"{what} would leave Curated; let {them} go with --accept-missing {tried.leaving}")
    confirm(f"Deploy this to {wish.topic}?", f"this changes topic {wish.topic!r}", yes=wish.yes)
    return tried.plan


def _check_allowed(wish: _Wish, new: "Schema", found: "Difference") -> None:
    """Refuse what need not even be tried on rows."""
    from leanops.usecases.schemas.validate import breaking_problems
    from leanops.views.schemas import difference_lines

    refusal = None
    if not wish.consent.rebuild and any(breaking_problems(new, found)):
        refusal = (
            f"this breaks what {wish.topic} has in its tables; rebuild them with --rebuild, or set "
            'policies.on_breaking to "rebuild"'
        )
    elif not wish.yes and not sys.stdin.isatty():
        refusal = f"this changes topic {wish.topic!r}; try it on rows with: leanops schema plan, and confirm with --yes"
    if refusal:
        for line in difference_lines(found):
            note(f"  {line}")
        raise UsageError(refusal)


def _report(platform: "Platform", wish: _Wish, deployed: "Deployed", plan: "SchemaPlan | None") -> None:
    schema, name = deployed.schema, platform.rules.databases.curated_table(deployed.schema.table_name)
    if wish.as_json:
        said = {"topic": wish.topic, "version": schema.version, "is_new": deployed.is_new, "curated": name}
        print_json({**said, "rebuilt": deployed.scope.value, "plan": plan})
        return
    anew = {"none": "", "curated": "; Curated was made anew", "both": "; Standardized and Curated were made anew"}
    is_idle = not deployed.is_new and deployed.scope == "none"
    state = (
        f"is active{'' if deployed.is_new else ' already'}{'; nothing changed' if is_idle else anew[deployed.scope]}"
    )
    say(f"{wish.topic}: schema version {schema.version} {state}; Curated is {name}")


def _active(platform: "Platform", topic: str) -> "Schema":
    from leanops.usecases.topics.registry import find_topic

    find_topic(platform, topic)
    schema = platform.schemas.active(topic)
    if schema is None:
        raise UsageError(f"topic {topic!r} has no schema; deploy one with: leanops schema deploy {topic} FILE")
    return schema


def _version(platform: "Platform", topic: str, version: int) -> "Schema":
    from leanops.domain.schema.model import schema_from_json

    return schema_from_json(_archived(platform, topic, version), f"version {version}", is_kept=True)


def _archived(platform: "Platform", topic: str, version: int) -> str:
    from leanops.usecases.topics.registry import find_topic

    find_topic(platform, topic)
    text = platform.schemas.text(topic, version)
    if text is None:
        raise UsageError(f"topic {topic!r} has no schema version {version}; see: leanops schema history {topic}")
    return text


def _earlier(platform: "Platform", topic: str, version: int) -> int:
    earlier = [one for one in platform.schemas.versions(topic) if one < version]
    if not earlier:
        raise UsageError(
            f"version {version} is the first schema of topic {topic!r}; there is nothing to compare it with"
        )
    return earlier[-1]


def _print(topic: str, schema: "Schema") -> None:
    from leanops.views.schemas import rules_of

    owner = f", owned by {schema.owner}" if schema.owner else ""
    say(f"{topic}: version {schema.version}{owner}; Curated table {schema.table_name}")
    rows: list[list[Any]] = [
        [one.name, one.path, str(one.type), "yes" if one.cde else "", one.pii, rules_of(one)]
        for one in schema.payload_columns
    ]
    print_table(("column", "path", "type", "CDE", "PII", "default and rules"), rows)
