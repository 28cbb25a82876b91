"""Strict casts, rules and masking of one cell, written from the specification alone."""

import hashlib
import hmac
import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any


class Failed:
    """The marker of a text that is no value of the type."""

    def __repr__(self) -> str:
        return "FAILED"


FAILED = Failed()
_BLANK = re.compile(r"[ \t\n\x0b\f\r]*")
_NUMBER = re.compile(r"([+-]?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?)([0-9]+))?")
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    r"(?:Z|([+-])([0-9]{2})(?::?([0-9]{2}))?)?"
)
_DECIMAL = re.compile(r"DECIMAL\(\s*([0-9]+)\s*,\s*([0-9]+)\s*\)")
_PER_SECOND = {"epoch_s": 1, "epoch_ms": 1_000}
_INTEGERS = {"INT": 2**31, "BIGINT": 2**63}


def is_blank(text: str) -> bool:
    """Whether a text holds nothing but white space."""
    return _BLANK.fullmatch(text) is not None


def cast(text: str, type_name: str, form: str = "iso") -> Any:
    """The value of a text, or FAILED; never a changed value. Of the formats only the epochs are known."""
    if form in _PER_SECOND:
        return _to_moment(text, _PER_SECOND[form])
    decimal = _DECIMAL.fullmatch(type_name)
    if decimal:
        return _to_decimal(text, int(decimal[1]), int(decimal[2]))
    if type_name in _INTEGERS:
        return _to_integer(text, _INTEGERS[type_name])
    return _OTHERS[type_name](text)


def _number(text: str) -> tuple[int, str, int] | None:
    """Sign, significant digits and power of ten: exact for every exponent, however long."""
    match = _NUMBER.fullmatch(text)
    if not match:
        return None
    sign, whole, fraction, exponent_sign, exponent = (group or "" for group in match.groups())
    digits = (whole + fraction).lstrip("0")
    exponent = exponent.lstrip("0") or "0"
    # No payload is long enough to bring an exponent of 19 digits back to a finite value.
    power = int(exponent) if len(exponent) < 19 else 10**18
    power = (-power if exponent_sign == "-" else power) - len(fraction)
    significant = digits.rstrip("0")
    return (-1 if sign == "-" else 1), significant, power + len(digits) - len(significant)


def _to_integer(text: str, bound: int) -> int | Failed:
    value = _to_decimal(text, 19, 0)
    return int(value) if isinstance(value, Decimal) and -bound <= value < bound else FAILED


def _to_moment(text: str, per_second: int) -> datetime | Failed:
    """A whole number of seconds or milliseconds since 1970 that a calendar of the years 1 to 9999 has."""
    count = _to_integer(text, 2**63)
    if isinstance(count, Failed):
        return FAILED
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=count * 1_000_000 // per_second)
    except OverflowError:
        return FAILED


def _to_decimal(text: str, precision: int, scale: int) -> Decimal | Failed:
    number = _number(text)
    if number is None:
        return FAILED
    sign, digits, power = number
    if not digits:
        return Decimal((0, (0,), -scale))
    if power < -scale or len(digits) + power > precision - scale:
        return FAILED
    padded = digits + "0" * (power + scale)
    return Decimal((int(sign < 0), tuple(map(int, padded)), -scale))


def _to_double(text: str) -> float | Failed:
    number = _number(text)
    if number is None:
        return FAILED
    value = float(text)
    underflow = value == 0 and number[1] != ""
    return FAILED if underflow or value in (float("inf"), float("-inf")) else value


def _to_boolean(text: str) -> bool | Failed:
    return {"true": True, "false": False}.get(text.lower(), FAILED)


def _to_date(text: str) -> date | Failed:
    match = _DATE.fullmatch(text)
    try:
        return date(*map(int, match.groups())) if match else FAILED
    except ValueError:
        return FAILED


def _to_timestamp(text: str) -> datetime | Failed:
    match = _TIMESTAMP.fullmatch(text)
    if not match:
        return FAILED
    *clock, fraction, sign, hours, minutes = match.groups()
    fraction = (fraction or "").ljust(9, "0")
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    if fraction[6:] != "000" or int(minutes or 0) > 59 or offset > timedelta(hours=18):
        return FAILED
    try:
        zone = timezone(-offset if sign == "-" else offset)
        return datetime(*(int(part or 0) for part in clock), int(fraction[:6]), zone).astimezone(UTC)
    except (ValueError, OverflowError):
        return FAILED


_OTHERS: dict[str, Callable[[str], Any]] = {
    "DOUBLE": _to_double,
    "BOOLEAN": _to_boolean,
    "DATE": _to_date,
    "TIMESTAMP": _to_timestamp,
    "STRING": str,
}


def as_text(value: Any) -> str:
    """A value of the schema file (a default, a bound) as the text a payload would hold."""
    return value if isinstance(value, str) else json.dumps(value)


def check(column: dict[str, Any], text: str | None, key: bytes = b"") -> tuple[Any, list[str]]:
    """The typed value of a cell after its default, and every rule it breaks; `key` is the HMAC key."""
    if text is None and column.get("default") is not None:
        text = as_text(column["default"])
    if column.get("cde") and (text is None or is_blank(text)):
        return None, ["cde_missing"]
    if text is None:
        return None, []
    value = cast(text, column["type"], column.get("format", "iso"))
    if value is FAILED:
        return None, ["cast_failed"]
    return protect(column.get("pii"), text, value, key), _broken_rules(column, text, value)


def _broken_rules(column: dict[str, Any], text: str, value: Any) -> list[str]:
    rules, type_name = column.get("rules") or {}, column["type"]
    bound = _bound(type_name)
    # A pattern is for texts of the length that is allowed.
    is_long = len(text) > rules.get("max_length", len(text))
    tests = {
        "rule_min": "min" in rules and value < bound(rules["min"]),
        "rule_max": "max" in rules and value > bound(rules["max"]),
        "rule_allowed": "allowed" in rules and value not in [bound(item) for item in rules["allowed"]],
        "rule_pattern": "pattern" in rules and not is_long and not re.fullmatch(rules["pattern"], text),
        "rule_length": not rules.get("min_length", 0) <= len(text) <= rules.get("max_length", len(text)),
    }
    return [rule for rule, broken in tests.items() if broken]


def _bound(type_name: str) -> Callable[[Any], Any]:
    """How a bound of the schema compares: numbers exactly, a DOUBLE as the double it is."""
    if type_name in _INTEGERS or _DECIMAL.fullmatch(type_name):
        return lambda bound: Decimal(as_text(bound))
    return lambda bound: cast(as_text(bound), type_name)


def protect(pii: str | None, text: str, value: Any, key: bytes) -> Any:
    """The value as Curated may show it."""
    if pii == "hmac":
        return hmac_hex(text, key)
    if pii == "mask":
        return "*" * len(text) if len(text) <= 4 else "*" * (len(text) - 4) + text[-4:]
    return None if pii == "drop" else value


def hmac_hex(text: str, key: bytes) -> str:
    """The hex HMAC-SHA-256 of a text."""
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
