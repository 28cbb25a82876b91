"""The schema file of a topic: what its Curated table holds and how each column is made."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictBool,
    WithJsonSchema,
    create_model,
)

from leanops.domain.errors import InvalidSchemaError, PermanentError
from leanops.domain.payload.columns import plain_name
from leanops.domain.schema import parse
from leanops.domain.schema.casts import DateFormat as DateFormat
from leanops.domain.schema.consistency import contradictions_in
from leanops.domain.schema.document import is_beneath, nearest, read_document
from leanops.domain.schema.parse import DEFAULT_KEY_PATH, DEFAULT_PERIOD_PATHS, Text, read_model
from leanops.domain.schema.regex import HINT
from leanops.domain.schema.rules import RULES
from leanops.domain.schema.types import TYPES, type_names
from leanops.domain.schema.types import ColumnType as ColumnType

_PATH_PATTERN = r'^\$(\.[A-Za-z_][A-Za-z0-9_]*|\["([^"\\]|\\.)*"\])+$'
_SIMPLE_TYPES = [name for name, entry in TYPES.items() if not entry.has_scale]
_DECIMAL_PATTERN = r"^DECIMAL\(([1-9]|[12][0-9]|3[0-8]), *([0-9]|[12][0-9]|3[0-8])\)$"

JsonPath = Annotated[
    str, BeforeValidator(parse.path_from_text), WithJsonSchema({"type": "string", "pattern": _PATH_PATTERN})
]
Type = Annotated[
    ColumnType,
    BeforeValidator(parse.type_from_text),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "anyOf": [{"enum": _SIMPLE_TYPES}, {"pattern": _DECIMAL_PATTERN}]}),
]
Name = Annotated[str, Field(pattern="^[a-z_][a-z0-9_]{0,127}$")]
# Bounds come before the validators, or the JSON Schema would not have them.
Version = Annotated[int, Field(ge=1, lt=2**31), BeforeValidator(parse.whole)]
Months = Annotated[int, Field(ge=0, le=1200), BeforeValidator(parse.whole)]
Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(parse.share)]
VersionFormat = Literal["iso", "epoch_s", "epoch_ms", "number"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class Rules(_Model):
    """Limits on a column's value."""

    @property
    def written(self) -> dict[str, Any]:
        """The limits that are there, by rule."""
        return {name: limit for name, limit in self if limit is not None}


if not TYPE_CHECKING:
    _limits = {name: (entry.reads | None, Field(None, description=entry.what)) for name, entry in RULES.items()}
    Rules = create_model("Rules", __base__=Rules, __doc__=Rules.__doc__, **_limits)


class PayloadColumn(_Model):
    """One column of Curated that comes from the payload."""

    name: Name = Field(description="Lower case letters, digits and _; no system column.")
    path: JsonPath | None = Field(
        None,
        description='JSON path, like $.order.id or $["a.b"].c; left out, the Standardized column of the same name.',
    )
    type: Type = Field(description=f"{', '.join(type_names()[:-1])} or {type_names()[-1]}.")
    cde: StrictBool = Field(False, description="Critical: NULL or blank is a failure.")
    default: Text | None = Field(None, description="Used where the value is NULL or missing.")
    rules: Rules = Field(Rules(), description="Limits on the value.")
    pii: Literal["hmac", "mask", "drop"] | None = Field(
        None, description="How a personal value is kept: sealed, its last four characters only, or not at all."
    )
    format: DateFormat = Field(DateFormat.ISO, description="How a DATE or TIMESTAMP is written.")
    description: str | None = Field(None, description="For people.")


class EnvelopeColumn(_Model):
    """A system column the owner declares; Curated has them all anyway."""

    name: str = Field(description="Name of a system column of Curated.")
    type: Type = Field(description="Its type: that of the table.")


class Keys(_Model):
    """Where a payload holds its key, its version and its period."""

    idempotency_key: JsonPath = Field(DEFAULT_KEY_PATH, description="Path of the business key; one row a key is kept.")
    version: JsonPath | None = Field(None, description="Path of the version; the newest version of a key wins.")
    version_format: VersionFormat = Field(
        "iso",
        description="What the version is: an ISO 8601 timestamp, a count of seconds or milliseconds since 1970, "
        "or a number that grows with each version.",
    )
    period: JsonPath | None = Field(None, description="Path of the period, yyyy-MM.")
    pii: Literal["hmac"] | None = Field(None, description="hmac: the key is personal, and sealed from Standardized on.")

    @property
    def period_paths(self) -> tuple[str, ...]:
        return (self.period,) if self.period else DEFAULT_PERIOD_PATHS

    @property
    def named(self) -> dict[str, str]:
        """The paths the file itself names, not the defaults, by member."""
        paths = {"idempotency_key": self.idempotency_key, "version": self.version, "period": self.period}
        return {name: path for name, path in paths.items() if path and name in self.model_fields_set}


class Policies(_Model):
    """What happens to the unexpected."""

    unknown_fields: Literal["evolve", "rescue", "quarantine"] = Field(
        "evolve", description="A path without a column: a new column, _rescued, or parse_errors."
    )
    on_breaking: Literal["refuse", "rebuild"] = Field(
        "refuse", description="What a breaking change of the schema does: nothing, or a rebuild of the topic."
    )
    cde_error_rate_alert: Share = Field(
        0.10, description="Share of a batch's rows, quarantined for any reason, above which cycle and status warn."
    )
    cde_error_rate_fail: Share | None = Field(
        None, description="Share of rows without a critical value that stops a batch."
    )
    lookback_months: Months = Field(1, description="Corrections of older periods are applied, and counted as late.")


def _with_editor_schema(described: dict[str, Any]) -> None:
    """Editors find the JSON Schema of a file by the file's own member `$schema`."""
    what = "Where an editor finds the JSON Schema of this file; not used otherwise."
    described["properties"] = {"$schema": {"type": "string", "description": what}, **described["properties"]}


class Schema(_Model):
    """`schemas/{topic}/active/schema.json`."""

    model_config = ConfigDict(json_schema_extra=_with_editor_schema)

    table_name: Name = Field(description="Name of the Curated table; it cannot be changed later.")
    version: Version = Field(
        1, description="Number of the schema; each deployment of new content gets the next one by itself."
    )
    owner: str | None = Field(None, description="Who answers for the topic.")
    description: str | None = Field(None, description="What the topic is, for people.")
    keys: Keys = Keys()
    envelope_columns: tuple[EnvelopeColumn, ...] = Field(
        description="System columns the owner relies on; may be empty."
    )
    payload_columns: tuple[PayloadColumn, ...] = Field(min_length=1, description="The columns of Curated.")
    measures: tuple[str, ...] = Field((), description="Numeric columns whose totals per period matter.")
    policies: Policies = Policies()

    @property
    def named_paths(self) -> tuple[str, ...]:
        """Paths that have a Standardized column from the first event on that has them, outside all limits."""
        in_columns = [column.path for column in self.payload_columns if column.path]
        return tuple(dict.fromkeys([*self.keys.named.values(), *in_columns]))

    def reads_sealed_key(self, column: PayloadColumn) -> bool:
        """Whether a column reads the key that `keys.pii` seals: Standardized has its HMAC there."""
        key = self.keys.idempotency_key
        is_key = column.path == key if column.path else column.name == plain_name(key)
        return self.keys.pii is not None and is_key

    @property
    def seals(self) -> bool:
        """Whether Curated holds HMACs."""
        return bool(self.keys.pii) or any(column.pii == "hmac" for column in self.payload_columns)


def schema_from_json(text: str, source: str, *, is_kept: bool = False) -> Schema:
    """The schema in a file's text; raises InvalidSchemaError with every problem and its place.

    A file that `is_kept` was deployed once: names that were reserved since then, and patterns of another grammar, do
    not make it unreadable; Curated refuses them.
    """
    document = read_document(text)
    offsets = document.offsets
    if not offsets:
        raise InvalidSchemaError(source, document.problems)
    reported = {problem.pointer for problem in document.problems if problem.pointer}
    schema, mistakes = read_model(Schema, document.value)
    problems = [*document.problems, *(problem for problem in mistakes if not is_beneath(problem.pointer, reported))]
    problems += contradictions_in(document.value, {problem.pointer for problem in problems}, is_kept=is_kept)
    if problems or schema is None:
        raise InvalidSchemaError(source, sorted(problems, key=lambda wrong: offsets[nearest(wrong.pointer, offsets)]))
    return schema


def check_rules(schema: Schema) -> None:
    """Refuse a schema whose rules cannot be applied; one that was deployed long ago may have such rules."""
    for column in schema.payload_columns:
        for name, limit in column.rules.written.items():
            fault = RULES[name].fault(limit)
            if fault:
                raise PermanentError(
                    f"the {name} of {schema.table_name}.{column.name} {fault}, so nothing is written to the table; "
                    f"{HINT}, and deploy the schema again"
                )


def changed_types(schema: "Schema", columns: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The payload columns a table has with another type: name → (the table's, the schema's)."""
    wanted = {column.name: column.type.iceberg for column in schema.payload_columns}
    there = {name: columns[name].replace(" ", "") for name in wanted if name in columns}
    return {name: (kind, wanted[name]) for name, kind in there.items() if kind != wanted[name]}
