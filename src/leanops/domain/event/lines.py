"""Events as people give them: one a line of a file, in an envelope of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from leanops.domain.errors import UsageError
from leanops.domain.event.envelope import LONGEST_ID, Envelope, micros

_MEMBERS = {"message_id", "publish_time", "payload", "idempotency_key", "attributes", "ingestion_ts"}
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True)
class Event:
    """One message before it is sent."""

    message_id: str
    publish_time: datetime
    payload: str
    ingestion_ts: int | None = None
    """None: when it is processed."""
    idempotency_key: str | None = None
    attributes: dict[str, str] | None = None

    def envelope(self, topic: str) -> Envelope:
        """The event as it travels through the topic's queue."""
        return Envelope(
            topic=topic,
            message_id=self.message_id,
            publish_time=micros(self.publish_time),
            payload=self.payload,
            idempotency_key=self.idempotency_key,
            attributes=self.attributes,
            ingestion_ts=self.ingestion_ts,
        )


def event_from_line(line: str, place: str) -> Event:
    """The event in one line of an envelope file; raises UsageError that says what is wrong with the line."""
    try:
        raw = _members.decode(line)
        values = {name: msgspec.json.decode(value) for name, value in raw.items() if name != "payload"}
    except (ValueError, RecursionError):
        raise UsageError(f"{place} is not a JSON object in UTF-8; write one envelope a line") from None
    if not raw.keys() >= {"message_id", "publish_time", "payload"}:
        raise UsageError(f"{place} is not an envelope; it needs message_id, publish_time and payload")
    unknown = sorted(raw.keys() - _MEMBERS)
    if unknown:
        raise UsageError(f"{place} has an unknown member {unknown[0]!r}; use {', '.join(sorted(_MEMBERS))}")
    return Event(
        message_id=_text(values, "message_id", place),
        publish_time=_time(values["publish_time"], place),
        payload=_payload(bytes(raw["payload"]), place),
        ingestion_ts=_number(values.get("ingestion_ts"), place),
        idempotency_key=_text(values, "idempotency_key", place) if values.get("idempotency_key") is not None else None,
        attributes=_attributes(values.get("attributes"), place),
    )


def _attributes(value: Any, place: str) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise UsageError(f"{place}: attributes must be an object of texts")
    return value


def _text(values: Mapping[str, Any], name: str, place: str) -> str:
    value = values[name]
    if not isinstance(value, str) or not value:
        raise UsageError(f"{place}: {name} must be a text that is not empty")
    if name == "message_id" and len(value) > LONGEST_ID:
        raise UsageError(f"{place}: message_id is longer than {LONGEST_ID} characters")
    return value


def _payload(text: bytes, place: str) -> str:
    """A text's content, or an object as it was written: a parser in between would change its numbers."""
    if text.startswith(b"{"):
        return text.decode()
    if text.startswith(b'"'):
        return msgspec.json.decode(text, type=str)
    raise UsageError(f"{place}: payload must be an object, or a text that holds the exact payload")


def _time(value: Any, place: str) -> datetime:
    try:
        moment = datetime.fromisoformat(value)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{place}: publish_time must be an ISO 8601 text like 2026-11-15T08:00:00Z") from None


def _number(value: Any, place: str) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < 2**53:
        raise UsageError(f"{place}: ingestion_ts must be epoch milliseconds")
    return value
