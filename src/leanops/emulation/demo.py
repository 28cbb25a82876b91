"""The demo: a home of its own, three batches of order events, a cycle after each, and the balance."""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from leanops.domain.errors import PermanentError, UsageError
from leanops.domain.events import Event
from leanops.domain.planning import Outcome
from leanops.emulation.orders import Emulation
from leanops.runtimes.embedded import Embedded, create_home
from leanops.runtimes.ingestion import landing_of
from leanops.settings import FILE
from leanops.usecases.deploy_schema import deploy_schema
from leanops.usecases.publish import publish, wait_until_landed
from leanops.usecases.run_cycle import TopicResult, run_cycle
from leanops.usecases.topics import add_topic
from leanops.views.balance import Balance, Check, whole_topic

TOPIC = "orders"
MARKER = "demo"
_SCHEMA = "orders.schema.json"
# Cycles of seconds are over before code compiled at length would pay.
_SETTINGS = 'java_options = "-XX:TieredStopAtLevel=1"\n'


@dataclass(frozen=True)
class Step:
    """One thing the demo did."""

    action: str
    name: str
    seconds: float
    events: int = 0
    result: TopicResult | None = None


Tell = Callable[[Step], None]
Progress = Callable[[str, str], None]


def fresh_home(home: Path) -> Path:
    """An empty demo home; an earlier demo is replaced, any other folder is left alone."""
    if home.exists():
        is_free = home.is_dir() and ((home / MARKER).exists() or not any(home.iterdir()))
        if not is_free:
            raise UsageError(f"{home} is there already and is no demo; choose another path: leanops demo PATH")
        shutil.rmtree(home)
    home.mkdir(parents=True)
    (home / MARKER).write_text("made by leanops demo, which may replace this folder\n")
    (home / FILE).write_text(_SETTINGS)
    return create_home(home)


def schema_text() -> str:
    """The schema of the demo's topic."""
    return files("leanops.emulation").joinpath(_SCHEMA).read_text(encoding="utf-8")


def play(runtime: Embedded, emulation: Emulation, tell: Tell, progress: Progress) -> None:
    """Publish each batch and run a cycle after it; the first waits in RAW until there is a schema."""
    add_topic(runtime.platform, TOPIC)
    for number, (name, events) in enumerate(emulation.batches.items()):
        tell(_published(runtime, name, events))
        if number == 0:
            tell(_cycled(runtime, "without a schema", progress))
            tell(_deployed(runtime))
        tell(_cycled(runtime, name, progress))


def _published(runtime: Embedded, name: str, events: Sequence[Event]) -> Step:
    started = time.monotonic()
    published = publish(runtime.platform, runtime.queue, runtime.files, TOPIC, events)
    wait_until_landed(landing_of(runtime), TOPIC)
    return Step("publish", name, time.monotonic() - started, events=published)


def _deployed(runtime: Embedded) -> Step:
    started = time.monotonic()
    deployed = deploy_schema(runtime.platform, TOPIC, schema_text(), _SCHEMA, "demo")
    return Step("deploy", f"schema version {deployed.schema.version}", time.monotonic() - started)


def _cycled(runtime: Embedded, name: str, progress: Progress) -> Step:
    started = time.monotonic()
    result = run_cycle(runtime.platform, [TOPIC], progress=progress)[0]
    if result.outcome == Outcome.FAILED:
        raise PermanentError(f"the cycle over {name!r} failed: {result.reason}") from result.failure
    return Step("cycle", name, time.monotonic() - started, result=result)


def judged(runtime: Embedded, emulation: Emulation) -> Balance:
    """The balance of the tables, and the tables against what the generator knows."""
    sources = runtime.sources()
    found = whole_topic(sources, TOPIC)
    facts, databases, count = emulation.facts, sources.databases, sources.catalog.count
    standardized, curated = databases.standardized_table(TOPIC), databases.curated_table(TOPIC)
    current = "SELECT count(*) FROM {} s ANTI JOIN {} c USING (idempotency_key, message_id)"
    failing = next(sources.query.ask(current.format(standardized, curated)).rows)[0]
    known = (
        Check("events published = RAW rows", facts.published, count(databases.raw_table(TOPIC))),
        Check("orders made = Standardized rows", facts.keys, count(standardized)),
        Check("broken events = parse errors", facts.malformed, count(databases.parse_errors)),
        Check("orders left invalid = keys failing in Curated", facts.failing, int(failing)),
    )
    return Balance((*known, *found.checks), found.problems)
