"""Why a row was quarantined, apart from the rules of its columns, and the failures that carry it."""

import re
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

DEAD_LETTERS = "dlq"
"""The layer of events that never came to RAW."""
HIDDEN = "***"
"""What an error row has in place of a personal value."""
_ERROR_ID = re.compile(r"[0-9a-f]{6,32}")


class Status(StrEnum):
    """What became of a quarantined row."""

    OPEN = "OPEN"
    REPLAYED = "REPLAYED"
    DISCARDED = "DISCARDED"


class Rule(StrEnum):
    """The reasons an error table can give beside the rules of columns, which are in the table of rules."""

    NOT_JSON = "not_json"
    TRAILING_TEXT = "trailing_text"
    DUPLICATE_KEY = "duplicate_key"
    TOO_DEEP = "too_deep"
    TOO_MANY_KEYS = "too_many_keys"
    TOO_LARGE = "too_large"
    NOT_OBJECT = "not_object"
    UNKNOWN_FIELD = "unknown_field"
    CDE_MISSING = "cde_missing"
    CAST_FAILED = "cast_failed"
    BAD_ENVELOPE = "bad_envelope"
    UNROUTABLE = "unroutable"
    RECEIVES_EXCEEDED = "receives_exceeded"


@dataclass(frozen=True)
class Hide:
    """A change of error rows: what they show of these columns and paths becomes stars."""

    columns: tuple[str, ...]
    paths: tuple[str, ...]


@dataclass(frozen=True)
class ForgetKeys:
    """A change of error rows: those of schema versions before this one lose their keys."""

    before: int


def error_id(layer: str, topic: str, message_id: str) -> str:
    """One id per layer, topic and message: a retry or a re-delivery cannot double the row."""
    return sha256(f"{layer}\n{topic}\n{message_id}".encode()).hexdigest()[:32]


def is_error_id(text: str) -> bool:
    """Whether a text is an error id, or enough of the beginning of one to look for it."""
    return _ERROR_ID.fullmatch(text) is not None
