"""Settings: the rules of every feature as one section each, read from leanops.toml and LEANOPS_* variables."""

import difflib
import os
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from leanops.adapters.iceberg.options import SparkRules
from leanops.domain.breaker import BreakerRules
from leanops.domain.errors import UsageError
from leanops.usecases.bridge.inflight import BridgeRules
from leanops.usecases.ingest.deliver import DeliveryRules
from leanops.usecases.ingest.room import IngestRules
from leanops.usecases.platform import PiiRules, Rules

FILE = "leanops.toml"
PREFIX = "LEANOPS_"
RUNTIME = "LEANOPS_RUNTIME"
# Read before there are settings: where they are, and what must not be in a file.
OUTSIDE = {RUNTIME, "LEANOPS_HOME", "LEANOPS_CACHE", "LEANOPS_PII_KEY"}


@dataclass(frozen=True)
class AwsNames:
    """What ingestion uses on AWS, by name."""

    table_prefix: Annotated[str, "Prefix of every DynamoDB table."] = ""
    queue_prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{0,16}$"), "Prefix of every SQS queue."] = "leanops-"
    bucket: Annotated[str, "Bucket of claim checks and dead letters; its variable leads `leanops bridge` to AWS."] = ""
    stream: Annotated[str, "Firehose stream that lands events in RAW."] = ""
    processor: Annotated[str, "Lambda function whose event source mappings a breaker switches."] = ""
    schema_job: Annotated[str, "Glue job that plans schema files of S3 on rows and activates them."] = ""


@dataclass(frozen=True)
class Settings(Rules):
    """Every section; each is the rules object that its feature takes, and a default is written down there alone."""

    ingest: IngestRules = field(default_factory=IngestRules)
    delivery: DeliveryRules = field(default_factory=DeliveryRules)
    breaker: BreakerRules = field(default_factory=BreakerRules)
    bridge: BridgeRules = field(default_factory=BridgeRules)
    spark: SparkRules = field(default_factory=SparkRules)
    pii: PiiRules = field(default_factory=PiiRules)
    aws: AwsNames = field(default_factory=AwsNames)


class Setting(NamedTuple):
    """A field of a section with a description; a field without one cannot be set."""

    section: str
    name: str
    meaning: str

    def __str__(self) -> str:
        return f"[{self.section}] {self.name}"

    @property
    def variable(self) -> str:
        return f"{PREFIX}{self.section}_{self.name}".upper()

    def value_in(self, settings: Settings) -> Any:
        return getattr(getattr(settings, self.section), self.name)


SETTINGS = {
    f"{section}_{name}": Setting(section, name, note)
    for section, rules in get_type_hints(Settings).items()
    for name, hint in get_type_hints(rules, include_extras=True).items()
    for note in getattr(hint, "__metadata__", ())
    if isinstance(note, str)
}
_OLD_NAMES = {
    "databases": " ".join(f"{name}_database={name}" for name in ("raw", "standardized", "curated", "shadow", "ops")),
    "limits": "payload_bytes payload_depth=depth payload_keys=keys duplicate_keys",
    "tables": "table_columns=columns new_columns",
    "pipeline": "workers explore cycle_s tries backoff_s lease_s warning_share removed_after_batches",
    "operations": "operation_wait_s=wait_s rebuild_rows",
    "ingest": "min_free_mb idempotency_hours",
    "delivery": "delivery_mb=flush_mb delivery_s=flush_s",
    "bridge": "events_per_message",
    "spark": "driver_memory java_options",
}
"""Names from before there were sections, `old=new` where the name itself changed; read for one version."""
_OLD = {
    name.partition("=")[0]: SETTINGS[f"{section}_{name.rpartition('=')[2]}"]
    for section, names in _OLD_NAMES.items()
    for name in names.split()
}
_KNOWN = _OLD | SETTINGS


def load_settings(home: Path | None) -> Settings:
    """The settings of a home; unknown names and bad values are one-line errors that say what to do."""
    values: dict[str, dict[str, Any]] = defaultdict(dict)
    for setting, value in (*_in_file(home), *_in_environment()):
        values[setting.section][setting.name] = value
    try:
        return TypeAdapter(Settings).validate_python(values)
    except ValidationError as invalid:
        problem = invalid.errors()[0]
        raise UsageError("setting [{}] {}: {}".format(*problem["loc"][:2], problem["msg"])) from None


@cache
def warn_once(old: str, new: str) -> None:
    """Say on standard error which name to use from now on."""
    sys.stderr.write(f"warning: {old} is now {new}; the next version no longer reads the old name\n")


def _in_file(home: Path | None) -> Iterator[tuple[Setting, Any]]:
    """What the file sets; what is outside of sections first, so that a name in its section wins."""
    if home is None or not (home / FILE).exists():
        return
    try:
        content = tomllib.loads((home / FILE).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as broken:
        raise UsageError(f"{FILE} is not TOML: {broken}") from None
    for key, value in sorted(content.items(), key=lambda item: isinstance(item[1], dict)):
        if isinstance(value, dict):
            for name, inner in value.items():
                yield SETTINGS.get(f"{key}_{name}") or _unknown(name, f"[{key}] of {FILE}", f"{key}_{name}"), inner
        else:
            setting = _KNOWN.get(key) or _unknown(key, FILE, key)
            warn_once(f"{key} in {FILE}", str(setting))
            yield setting, value


def _in_environment() -> Iterator[tuple[Setting, Any]]:
    """What variables set, in whatever case; one with an old name first, so that the new one wins."""
    variables = {name.upper(): value for name, value in os.environ.items()}
    names = [name.removeprefix(PREFIX).lower() for name in variables.keys() - OUTSIDE if name.startswith(PREFIX)]
    for name in sorted(names, key=lambda name: (name in SETTINGS, name)):
        setting = _KNOWN.get(name) or _unknown(name, "the environment", name, attrgetter("variable"))
        variable = f"{PREFIX}{name.upper()}"
        if name in _OLD:
            warn_once(variable, setting.variable)
        yield setting, variables[variable]


def _unknown(name: str, place: str, flat: str, shown: Callable[[Setting], str] = str) -> NoReturn:
    # An old name that was appended to the file belongs to its last section now.
    close = [name] if name in _OLD else difflib.get_close_matches(flat, _KNOWN, n=1)
    hint = f"; did you mean {shown(_KNOWN[close[0]])}?" if close else ""
    raise UsageError(f"unknown setting {name!r} in {place}{hint}")
