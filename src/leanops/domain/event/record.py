"""A record of the delivery stream: one RAW row as a line of JSON, and the topic whose table it belongs to."""

from collections import defaultdict
from collections.abc import Container
from dataclasses import dataclass

import msgspec

from leanops.domain.event.envelope import Envelope


class RawRecord(msgspec.Struct):
    """One row of RAW under the names of its columns, as Firehose writes it; publish_time in microseconds."""

    message_id: str
    publish_time: int
    topic_name: str
    json_payload: str
    ingestion_ts: int
    idempotency_key: str | None = None
    attributes: str | None = None


@dataclass(frozen=True)
class Unroutable:
    """A record that no table takes; the reason quotes nothing of its payload."""

    record: bytes
    topic: str | None
    reason: str


encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(RawRecord)
_attributes = msgspec.json.Decoder(dict[str, str] | None)


def raw_record(envelope: Envelope, payload: str, ingestion_ts: int) -> bytes:
    """The record of an event."""
    attributes = encode(envelope.attributes).decode() if envelope.attributes is not None else None
    return encode(
        RawRecord(
            envelope.message_id,
            envelope.publish_time,
            envelope.topic,
            payload,
            ingestion_ts,
            envelope.idempotency_key,
            attributes,
        )
    )


@dataclass(frozen=True)
class Routed:
    """Records by the topic whose table takes them, and those that none takes."""

    rows: dict[str, list[RawRecord]]
    rest: list[Unroutable]


def routed(lines: bytes, registered: Container[str]) -> Routed:
    """The transform, for Firehose and for our own stream: where every record goes."""
    rows: dict[str, list[RawRecord]] = defaultdict(list)
    rest: list[Unroutable] = []
    try:
        records = _decoder.decode_lines(lines)
    except (ValueError, RecursionError):
        decoded = [_decoded(line) for line in lines.split(b"\n") if line]
        records = [record for record in decoded if isinstance(record, RawRecord)]
        rest = [record for record in decoded if isinstance(record, Unroutable)]
    for record in records:
        rows[record.topic_name].append(record)
    for topic in [topic for topic in rows if topic not in registered]:
        reason = f"topic {topic!r} is not registered; add it, then replay"
        rest += [Unroutable(encode(record), topic, reason) for record in rows.pop(topic)]
    return Routed(rows, rest)


def _decoded(line: bytes) -> RawRecord | Unroutable:
    try:
        return _decoder.decode(line)
    except (ValueError, RecursionError) as wrong:
        return Unroutable(line, None, f"is not a RAW record: {wrong}")


def envelope_again(record: bytes) -> Envelope | None:
    """The envelope that would bring a record back through the queue; None where it is not a record."""
    row = _decoded(record)
    if isinstance(row, Unroutable):
        return None
    return Envelope(
        row.topic_name,
        row.message_id,
        row.publish_time,
        payload=row.json_payload,
        idempotency_key=row.idempotency_key,
        attributes=_attributes.decode(row.attributes) if row.attributes else None,
        ingestion_ts=row.ingestion_ts,
    )
