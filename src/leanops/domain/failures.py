"""Why a row was quarantined: a closed list of rules and the failures that carry them."""

from enum import StrEnum
from hashlib import sha256

DEAD_LETTERS = "dlq"
"""The layer of events that never came to RAW."""


class Status(StrEnum):
    """What became of a quarantined row."""

    OPEN = "OPEN"
    REPLAYED = "REPLAYED"
    DISCARDED = "DISCARDED"


class Rule(StrEnum):
    """Every reason an error table can give; filters, metrics and tests use this list."""

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
    RULE_MIN = "rule_min"
    RULE_MAX = "rule_max"
    RULE_ALLOWED = "rule_allowed"
    RULE_PATTERN = "rule_pattern"
    RULE_LENGTH = "rule_length"
    BAD_ENVELOPE = "bad_envelope"
    UNROUTABLE = "unroutable"
    RECEIVES_EXCEEDED = "receives_exceeded"


def error_id(layer: str, topic: str, message_id: str) -> str:
    """One id per layer, topic and message: a retry or a re-delivery cannot double the row."""
    return sha256(f"{layer}\n{topic}\n{message_id}".encode()).hexdigest()[:32]
