"""The schema file of a topic: what its Curated table holds and how each column is made."""

import json
import math
import re
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from leanops.domain.errors import InvalidPathError, InvalidSchemaError
from leanops.domain.paths import canonical
from leanops.domain.tables import CURATED_SYSTEM_COLUMNS, ICEBERG_METADATA_COLUMNS, RESERVED_TABLES

DEFAULT_KEY_PATH = "$._metadata.idempotencyKeyResource"
DEFAULT_PERIOD_PATHS = ("$.periodReference", "$.period_reference")


class TypeName(StrEnum):
    """The types a Curated column can have."""

    STRING = "STRING"
    INT = "INT"
    BIGINT = "BIGINT"
    DECIMAL = "DECIMAL"
    DOUBLE = "DOUBLE"
    BOOLEAN = "BOOLEAN"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"


class ColumnType(NamedTuple):
    """A type with its precision and scale where it has them."""

    name: TypeName
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})" if self.name == TypeName.DECIMAL else self.name.value


class DateFormat(StrEnum):
    """How the text of a DATE or TIMESTAMP is written; `iso` is ISO 8601."""

    ISO = "iso"
    EPOCH_SECONDS = "epoch_s"
    EPOCH_MILLIS = "epoch_ms"
    DAY_MONTH_YEAR = "dd/MM/yyyy"
    MONTH_DAY_YEAR = "MM/dd/yyyy"
    DOTTED = "dd.MM.yyyy"
    COMPACT = "yyyyMMdd"


_A_NUMBER = r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?"
_A_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_A_TIME = r"[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-](0[0-9]|1[0-7])(:?[0-5][0-9])?)?"
# How limits are written: what these let pass, the casts of Curated take for a value.
_LIMITS = {
    **dict.fromkeys((TypeName.INT, TypeName.BIGINT, TypeName.DECIMAL, TypeName.DOUBLE), _A_NUMBER),
    TypeName.BOOLEAN: r"true|false",
    TypeName.DATE: _A_DATE,
    TypeName.TIMESTAMP: _A_DATE + _A_TIME,
}
_NOT_JAVA = r"\(\?([P#(]|[a-zA-Z]*x)|(?<!\\)\{(?![0-9]+(,[0-9]*)?\})"
_EPOCHS = (DateFormat.EPOCH_SECONDS, DateFormat.EPOCH_MILLIS)
_DECIMAL = re.compile(r"DECIMAL\(([0-9]{1,2}), *([0-9]{1,2})\)")
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,127}")


def _type_from_text(text: Any) -> Any:
    if isinstance(text, ColumnType):
        return text
    if not isinstance(text, str):
        raise ValueError("write the type as text, like DECIMAL(18,2)")
    found = _DECIMAL.fullmatch(text.upper())
    if found:
        precision, scale = int(found[1]), int(found[2])
        if not 1 <= precision <= 38 or scale > precision:
            raise ValueError(f"{text}: precision is 1 to 38 and scale at most the precision")
        return ColumnType(TypeName.DECIMAL, precision, scale)
    try:
        name = TypeName(text.upper())
    except ValueError:
        raise ValueError(f"unknown type {text!r}; use one of {', '.join(TypeName)}") from None
    if name == TypeName.DECIMAL:
        raise ValueError("DECIMAL needs precision and scale, like DECIMAL(18,2)")
    return ColumnType(name)


def _path_from_text(text: Any) -> Any:
    try:
        return canonical(text) if isinstance(text, str) else text
    except InvalidPathError as wrong:
        raise ValueError(str(wrong)) from None


def _text_from_scalar(value: Any) -> Any:
    """Defaults and limits may be written as JSON numbers or booleans; they are compared as texts."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _check_value(text: str, kind: "TypeName", place: str) -> None:
    """Raise unless a limit can be compared with values of the type."""
    grammar = _LIMITS.get(kind)
    try:
        if grammar and not re.fullmatch(grammar, text, re.ASCII):
            raise ValueError
        match kind:
            case TypeName.INT | TypeName.BIGINT | TypeName.DECIMAL:
                if sum(character.isdigit() for character in f"{Decimal(text):f}") > 38:
                    raise ValueError
            case TypeName.DOUBLE:
                if math.isinf(float(text)) or (float(text) == 0 and re.search("[1-9]", text.lower().split("e")[0])):
                    raise ValueError
            case TypeName.DATE:
                date.fromisoformat(text)
            case TypeName.TIMESTAMP:
                datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{place}: {text!r} is no {kind.value}") from None


JsonPath = Annotated[str, BeforeValidator(_path_from_text)]
Type = Annotated[
    ColumnType,
    BeforeValidator(_type_from_text),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "examples": ["STRING", "BIGINT", "DECIMAL(18,2)", "TIMESTAMP"]}),
]
Name = Annotated[str, Field(pattern=f"^{_NAME.pattern}$")]
Text = Annotated[str, BeforeValidator(_text_from_scalar), WithJsonSchema({"type": ["string", "number", "boolean"]})]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class Rules(_Model):
    """Limits on a column's value."""

    min: Text | None = None
    max: Text | None = None
    allowed: tuple[Text, ...] | None = None
    pattern: str | None = None
    min_length: int | None = Field(default=None, ge=0)
    max_length: int | None = Field(default=None, ge=0)


class PayloadColumn(_Model):
    """One column of Curated that comes from the payload."""

    name: Name
    path: JsonPath | None = None
    type: Type
    cde: bool = False
    default: Text | None = None
    rules: Rules = Rules()
    pii: Literal["hmac", "mask", "drop"] | None = None
    format: DateFormat = DateFormat.ISO
    description: str | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> "PayloadColumn":
        if self.name in (*CURATED_SYSTEM_COLUMNS, *ICEBERG_METADATA_COLUMNS):
            raise ValueError(f"{self.name!r} is a system column; choose another name")
        if self.format != DateFormat.ISO and not self._takes_format():
            raise ValueError(f"format {self.format.value!r} does not go with type {self.type}")
        if self.pii in ("hmac", "mask") and self.type.name != TypeName.STRING:
            raise ValueError(f"pii {self.pii!r} needs type STRING, not {self.type}")
        self._check_rules()
        return self

    @property
    def is_exact(self) -> bool:
        """Whether its values are exact numbers."""
        return self.type.name in (TypeName.INT, TypeName.BIGINT, TypeName.DECIMAL)

    def _check_rules(self) -> None:
        for name in ("min", "max"):
            limit = getattr(self.rules, name)
            if limit is not None:
                _check_value(limit, self.type.name, f"rules.{name}")
        for value in self.rules.allowed or ():
            _check_value(value, self.type.name, "rules.allowed")
        if self.rules.pattern is not None:
            if re.search(_NOT_JAVA, self.rules.pattern):
                raise ValueError("rules.pattern: (?P, (?#, (?(, (?x and a { that counts nothing are not for Java")
            try:
                re.compile(self.rules.pattern)
            except re.error as broken:
                raise ValueError(f"rules.pattern is no regular expression: {broken}") from None

    def _takes_format(self) -> bool:
        return self.type.name == (TypeName.TIMESTAMP if self.format in _EPOCHS else TypeName.DATE)


class EnvelopeColumn(_Model):
    """A system column the owner declares; Curated has them all anyway."""

    name: str
    type: Type


class Keys(_Model):
    """Where a payload holds its key, its version and its period."""

    idempotency_key: JsonPath = DEFAULT_KEY_PATH
    version: JsonPath | None = None
    period: JsonPath | None = None
    pii: Literal["hmac"] | None = None

    @property
    def period_paths(self) -> tuple[str, ...]:
        return (self.period,) if self.period else DEFAULT_PERIOD_PATHS

    @property
    def named_paths(self) -> tuple[str, ...]:
        """The paths the file itself names, not the defaults."""
        paths = {"idempotency_key": self.idempotency_key, "version": self.version, "period": self.period}
        return tuple(path for name, path in paths.items() if path and name in self.model_fields_set)


class Policies(_Model):
    """What happens to the unexpected."""

    unknown_fields: Literal["evolve", "rescue", "quarantine"] = "evolve"
    on_breaking: Literal["refuse", "rebuild"] = "refuse"
    cde_error_rate_alert: float = Field(default=0.10, ge=0, le=1)
    cde_error_rate_fail: float | None = Field(default=None, ge=0, le=1)
    lookback_months: int = Field(default=1, ge=0)


class Schema(_Model):
    """`schemas/{topic}/active/schema.json`."""

    table_name: Name
    version: int = Field(default=1, ge=1, lt=2**31)
    owner: str | None = None
    description: str | None = None
    keys: Keys = Keys()
    envelope_columns: tuple[EnvelopeColumn, ...]
    payload_columns: tuple[PayloadColumn, ...] = Field(min_length=1)
    measures: tuple[str, ...] = ()
    policies: Policies = Policies()

    @model_validator(mode="after")
    def _fits_together(self) -> "Schema":
        names = [column.name for column in self.payload_columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"columns named twice: {', '.join(twice)}")
        if self.table_name in RESERVED_TABLES:
            raise ValueError(f"table_name {self.table_name!r} is reserved; choose another")
        missing = [name for name in self.measures if name not in names]
        if missing:
            raise ValueError(f"measures are not columns: {', '.join(missing)}")
        sealed = {column.path for column in self.payload_columns if column.pii}
        if self.keys.idempotency_key in sealed and self.keys.pii is None:
            raise ValueError('the key path is PII: set keys.pii to "hmac", or the key would stand in clear')
        return self

    @property
    def named_paths(self) -> tuple[str, ...]:
        """Paths that always have a Standardized column, outside all limits."""
        in_columns = [column.path for column in self.payload_columns if column.path]
        return tuple(dict.fromkeys([*self.keys.named_paths, *in_columns]))


def schema_from_json(text: str, source: str) -> Schema:
    """The schema in a file's text; raises InvalidSchemaError with every problem and its place."""
    try:
        # Numbers keep their digits: a limit of twenty digits is no float.
        said = json.loads(text, parse_float=str, parse_constant=_refuse_constant)
        json.dumps(said, ensure_ascii=False).encode()
        return Schema.model_validate(said)
    except json.JSONDecodeError as broken:
        raise InvalidSchemaError(source, [f"not JSON: {broken.msg} at line {broken.lineno}"]) from None
    except RecursionError:
        raise InvalidSchemaError(source, ["not JSON: nested too deeply"]) from None
    except UnicodeEncodeError:
        raise InvalidSchemaError(source, ["not JSON in UTF-8: it holds a lone surrogate"]) from None
    except ValidationError as invalid:
        raise InvalidSchemaError(source, [_problem(found) for found in invalid.errors()]) from None


def _refuse_constant(name: str) -> None:
    raise json.JSONDecodeError(f"{name} is no JSON", name, 0)


def _problem(found: Any) -> str:
    # A member's name may hold anything; shown as Python writes it, it stays on one line.
    place = "/" + "/".join(repr(str(part))[1:-1] for part in found["loc"])
    return f"{place}: {found['msg'].removeprefix('Value error, ')}"


def changed_types(schema: "Schema", columns: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The payload columns a table has with another type: name → (the table's, the schema's)."""
    wanted = {column.name: iceberg_type(column.type) for column in schema.payload_columns}
    there = {name: columns[name].replace(" ", "") for name in wanted if name in columns}
    return {name: (kind, wanted[name]) for name, kind in there.items() if kind != wanted[name]}


def iceberg_type(kind: ColumnType) -> str:
    """The type of a Curated column as Iceberg writes it."""
    names = {TypeName.BIGINT: "long", TypeName.TIMESTAMP: "timestamptz"}
    if kind.name == TypeName.DECIMAL:
        return f"decimal({kind.precision},{kind.scale})"
    return names.get(kind.name, kind.name.value.lower())
