"""Judges waiting schema files by the files and the registry alone: no table is read and no engine is started."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from leanops.domain.errors import InvalidSchemaError
from leanops.domain.problems import Code, Problem, printable
from leanops.domain.schema.diff import Difference, Kind, difference
from leanops.domain.schema.lint import sealed_key_problems
from leanops.domain.schema.model import Schema, schema_from_json
from leanops.domain.words import counted
from leanops.ports.clock import Clock, millis
from leanops.ports.schemas import Pending, Schemas
from leanops.ports.state import SCHEMA_REGISTRY, StateStore
from leanops.usecases.topics.registry import ERROR, READY

LONGEST_GAP = 1_000
"""How far a file's version may be above the active one."""


@dataclass(frozen=True)
class Intake:
    """The ports that judging needs; a Lambda function has no more."""

    schemas: Schemas
    state: StateStore
    clock: Clock


class Outcome(StrEnum):
    """What became of a file that waited."""

    ACTIVE = "active"
    UNCHANGED = "unchanged"
    """It has the content of the active schema."""
    FAILED = "failed"
    SOUND = "sound"
    """It has no problem, unless its rows have."""
    WAITING = "waiting"
    """Another worker has its topic."""
    GONE = "gone"


@dataclass(frozen=True)
class Candidate:
    """A file that may become active, as far as files and registry show."""

    data: bytes
    text: str
    schema: Schema
    difference: Difference


@dataclass(frozen=True)
class Verdict:
    """One file, and what became of it."""

    pending: Pending
    outcome: Outcome
    version: int | None = None
    problems: tuple[Problem, ...] = ()
    reason: str | None = None
    candidate: Candidate | None = None

    def sentence(self) -> str:
        """One line for people."""
        return f"{printable(self.pending.topic)}: {self.what()}"

    def what(self) -> str:
        """The same without the topic."""
        sentences = {
            Outcome.ACTIVE: f"is now schema version {self.version}",
            Outcome.UNCHANGED: f"is the same as schema version {self.version}; nothing changed",
            Outcome.FAILED: f"is refused: {self._first_problem()}",
            Outcome.SOUND: "is valid; it becomes active once it has been tried on rows",
            Outcome.WAITING: f"waits: {self.reason}",
            Outcome.GONE: "is gone",
        }
        return f"{printable(self.pending.name)} {sentences[self.outcome]}"

    def _first_problem(self) -> str:
        more = f" (and {counted(len(self.problems) - 1, 'more problem')})" if self.problems[1:] else ""
        report = printable(f"schemas/{self.pending.topic}/failed/reports/{self.pending.name}")
        return f"{self.problems[0]}{more}; see {report}" if self.problems else ""


def judge(intake: Intake, pending: Pending) -> Verdict:
    """Judge whether a file may become active; one that may not is moved to failed/. Judging twice changes nothing."""
    data = intake.schemas.read_pending(pending.topic, pending.name)
    if data is None:
        return Verdict(pending, Outcome.GONE)
    if intake.state.get(SCHEMA_REGISTRY, (pending.topic,)) is None:
        missing = f"topic {pending.topic!r} is not registered"
        add = f"add it with: leanops topics add {printable(pending.topic)}"
        return refuse(intake, pending, data, [Problem(Code.UNKNOWN_TOPIC, "", missing, add)])
    active = intake.schemas.active(pending.topic)
    try:
        text = data.decode()
        schema = schema_from_json(text, pending.name)
    except UnicodeDecodeError:
        broken = Problem(Code.NOT_UTF8, "", "not UTF-8", "save the file as UTF-8")
        return refuse(intake, pending, data, [broken])
    except InvalidSchemaError as invalid:
        return refuse(intake, pending, data, invalid.problems)
    changes = difference(active, schema)
    problems = [*table_problems(intake.schemas, pending.topic, active, schema), *version_problems(active, schema)]
    problems += [*sealed_key_problems(schema), *breaking_problems(schema, changes)]
    if problems:
        return refuse(intake, pending, data, problems)
    return Verdict(pending, Outcome.SOUND, candidate=Candidate(data, text, schema, changes))


def refuse(intake: Intake, pending: Pending, data: bytes, problems: Sequence[Problem]) -> Verdict:
    """Move a file to failed/ with a report of every problem, and note it in the registry if the topic has no schema."""
    verdict = Verdict(pending, Outcome.FAILED, problems=tuple(problems))
    _note_error(intake, pending.topic, verdict.what())
    report = {
        "topic": pending.topic,
        "file": pending.name,
        "at": intake.clock().isoformat(),
        "problems": [asdict(problem) for problem in problems],
    }
    text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
    intake.schemas.fail(pending.topic, pending.name, data, text)
    return verdict


def breaking_problems(schema: Schema, difference: Difference) -> Iterator[Problem]:
    """The changes that need a rebuild that nobody asked for."""
    if schema.policies.on_breaking == "rebuild":
        return
    hint = 'set policies.on_breaking to "rebuild", or deploy it with: leanops schema deploy --rebuild'
    for change in difference.changes:
        if change.kind == Kind.BREAKING and change.pointer != "/table_name":
            yield Problem(Code.BREAKING_CHANGE, change.pointer, f"breaking: {change.what}", hint)


def table_problems(schemas: Schemas, topic: str, active: Schema | None, schema: Schema) -> Iterator[Problem]:
    """A Curated table belongs to one topic for good."""
    if active and active.table_name != schema.table_name:
        renamed = f"is {active.table_name!r} and cannot be renamed"
        yield Problem(Code.TABLE_RENAMED, "/table_name", renamed, "keep that name")
    elif active is None:
        for other, table in schemas.topics().items():
            if other != topic and table == schema.table_name:
                taken = f"{table!r} belongs to topic {other!r}"
                yield Problem(Code.TABLE_TAKEN, "/table_name", taken, "choose another name")


def version_problems(active: Schema | None, schema: Schema) -> Iterator[Problem]:
    """A version may leave a gap, but not use up the numbers of later ones."""
    at_most = (active.version if active else 0) + LONGEST_GAP
    if schema.version > at_most:
        far = f"{schema.version} is more than {LONGEST_GAP:,} above the active version"
        yield Problem(
            Code.OUT_OF_RANGE, "/version", far, f"write {at_most} or less, or leave it out: the next number is assigned"
        )


def _note_error(intake: Intake, topic: str, reason: str) -> None:
    """Note a bad file, but leave alone a topic that has a schema, or one that a person paused."""
    stored = intake.state.get(SCHEMA_REGISTRY, (topic,))
    if stored is None or stored.row["status"] not in (READY, ERROR) or stored.row["processing_enabled"]:
        return
    if intake.schemas.active(topic) is None:
        row = {**stored.row, "status": ERROR, "reason": reason, "updated_at": millis(intake.clock())}
        intake.state.put(SCHEMA_REGISTRY, row, expected=stored.revision)
