"""A record of the delivery stream: one RAW row as a line of JSON, and the topic whose table it belongs to."""

from collections.abc import Container, Iterator
from dataclasses import dataclass

import msgspec

from leanops.domain.envelope import Envelope


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
    """A record that no table takes; the reason quotes nothing of it."""

    record: bytes
    topic: str | None
    reason: str


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(RawRecord)
_attributes = msgspec.json.Decoder(dict[str, str] | None)


def raw_record(envelope: Envelope, payload: str, ingestion_ts: int) -> bytes:
    """The record of an event."""
    attributes = _encode(envelope.attributes).decode() if envelope.attributes is not None else None
    return _encode(
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


def routed(lines: bytes, registered: Container[str]) -> Iterator[RawRecord | Unroutable]:
    """The transform, for Firehose and for our own stream: every record, or why it has no table."""
    try:
        records: list[RawRecord | Unroutable] = list(_decoder.decode_lines(lines))
    except (ValueError, RecursionError):
        records = [_decoded(line) for line in lines.split(b"\n") if line]
    for record in records:
        if isinstance(record, Unroutable) or record.topic_name in registered:
            yield record
        else:
            topic = record.topic_name
            yield Unroutable(_encode(record), topic, f"topic {topic!r} is not registered; add it, then replay")


def _decoded(line: bytes) -> RawRecord | Unroutable:
    try:
        return _decoder.decode(line)
    except (ValueError, RecursionError) as wrong:
        return Unroutable(line, None, f"is no RAW record: {wrong}")


def envelope_again(record: bytes) -> Envelope | None:
    """The envelope that would bring a record back through the queue; None where it is no record."""
    found = _decoded(record)
    if isinstance(found, Unroutable):
        return None
    return Envelope(
        found.topic_name,
        found.message_id,
        found.publish_time,
        payload=found.json_payload,
        idempotency_key=found.idempotency_key,
        attributes=_attributes.decode(found.attributes) if found.attributes else None,
        ingestion_ts=found.ingestion_ts,
    )
