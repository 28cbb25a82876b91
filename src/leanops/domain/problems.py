"""Problems of a schema file: what is wrong, where in the file, and how to put it right."""

from dataclasses import dataclass
from enum import StrEnum

LONGEST_QUOTE = 80
LONGEST_POINTER = 200


class Code(StrEnum):
    """Everything that can be wrong with a schema file."""

    NOT_UTF8 = "not_utf8"
    NOT_JSON = "not_json"
    TOO_LARGE = "too_large"
    TOO_DEEP = "too_deep"
    NOT_OBJECT = "not_object"
    DUPLICATE_KEY = "duplicate_key"
    MISSING_KEY = "missing_key"
    UNKNOWN_KEY = "unknown_key"
    WRONG_KIND = "wrong_kind"
    UNKNOWN_VALUE = "unknown_value"
    OUT_OF_RANGE = "out_of_range"
    EMPTY = "empty"
    REPEATED = "repeated"
    BAD_NAME = "bad_name"
    RESERVED_NAME = "reserved_name"
    UNKNOWN_TYPE = "unknown_type"
    BAD_DECIMAL = "bad_decimal"
    BAD_PATH = "bad_path"
    BAD_LIMIT = "bad_limit"
    BAD_DEFAULT = "bad_default"
    BAD_PATTERN = "bad_pattern"
    BAD_FORMAT = "bad_format"
    CONTRADICTION = "contradiction"
    COLUMN_TWICE = "column_twice"
    COLLISION = "collision"
    KEY_CONFLICT = "key_conflict"
    PII_NEEDS_STRING = "pii_needs_string"
    PII_KEY_IN_CLEAR = "pii_key_in_clear"
    PII_IN_CLEAR = "pii_in_clear"
    PII_AS_MEASURE = "pii_as_measure"
    PII_SEALED_ALREADY = "pii_sealed_already"
    MEASURE_UNKNOWN = "measure_unknown"
    MEASURE_NOT_NUMBER = "measure_not_number"
    ENVELOPE_UNKNOWN = "envelope_unknown"
    ENVELOPE_TYPE = "envelope_type"
    TABLE_TWICE = "table_twice"
    TABLE_TAKEN = "table_taken"
    TABLE_RENAMED = "table_renamed"
    TYPE_CHANGED = "type_changed"
    UNKNOWN_TOPIC = "unknown_topic"
    NO_PII_KEY = "no_pii_key"
    BREAKING_CHANGE = "breaking_change"
    CDE_MISSING = "cde_missing"
    BLOCKED = "blocked"
    PATH_UNSEEN = "path_unseen"


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a schema file."""

    code: Code
    """Filters and tests rely on it."""
    pointer: str
    """Where in the file, as a JSON pointer; empty is the whole file."""
    message: str
    hint: str
    """What to do about it."""

    def __str__(self) -> str:
        where = f"{printable(self.pointer[:LONGEST_POINTER])}: " if self.pointer else ""
        return f"{where}{self.message}; {self.hint}"


def quoted(text: str) -> str:
    """A text of the file for a message: short, and on one line whatever it holds."""
    return f"'{printable(text if len(text) <= LONGEST_QUOTE else text[: LONGEST_QUOTE - 1] + '…')}'"


def printable(text: str) -> str:
    """The text with everything that could steer a terminal or end a line made visible."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
