"""The envelope of an event: what travels with its payload through a queue."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec

from leanops.domain.groups import in_groups

EARLIEST_MICROS, LATEST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first microsecond of the year 1 and the last of 9999."""
LONGEST_ID = 1_024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
Text = Annotated[str, msgspec.Meta(min_length=1)]
MessageId = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_ID)]
Millis = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]


def micros(moment: datetime) -> int:
    """Microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


class Envelope(msgspec.Struct, omit_defaults=True):
    """What a queue carries for one event; exactly one of payload, data and claim holds its bytes."""

    topic: Text
    message_id: MessageId
    publish_time: Annotated[int, msgspec.Meta(ge=EARLIEST_MICROS, le=LATEST_MICROS)]
    """Microseconds since 1970, as RAW and Firehose want them."""
    payload: str | None = None
    data: bytes | None = None
    """Bytes that are not UTF-8; base64 in JSON."""
    claim: Text | None = None
    """The file that holds bytes too large for the queue."""
    idempotency_key: str | None = None
    attributes: dict[str, str] | None = None
    ingestion_ts: Millis | None = None
    """None unless the publisher sets it: the processor stamps it."""

    def __post_init__(self) -> None:
        if (self.payload is None) + (self.data is None) + (self.claim is None) != 2:
            raise ValueError("Expected exactly one of `payload`, `data` and `claim`")


@dataclass(frozen=True)
class BadEnvelope:
    """A queue message, or a part of one, that cannot be decoded; the reason does not quote it."""

    body: bytes
    message_id: str | None
    reason: str


_one = msgspec.json.Decoder(Envelope)
_several = msgspec.json.Decoder(list[Envelope])
_parts = msgspec.json.Decoder(list[msgspec.Raw])
_encoder = msgspec.json.Encoder()


def encoded(envelope: Envelope) -> bytes:
    """A queue message with one event; U+FFFE and U+FFFF, which SQS refuses, are escaped before it is measured."""
    return _encoder.encode(envelope).replace(b"\xef\xbf\xbe", b"\\ufffe").replace(b"\xef\xbf\xbf", b"\\uffff")


def bodies(envelopes: Iterable[Envelope], events: int, limit: int) -> Iterator[tuple[bytes, list[Envelope]]]:
    """Queue messages of at most N events and bytes, in order; an envelope over the limit comes alone."""
    pairs = ((encoded(envelope), envelope) for envelope in envelopes)
    # A comma or bracket follows each envelope, and one bracket comes first.
    for group in in_groups(pairs, lambda pair: len(pair[0]) + 1, most=events, most_bytes=limit - 1):
        parts = [part for part, _ in group]
        body = parts[0] if len(parts) == 1 else b"[" + b",".join(parts) + b"]"
        yield body, [envelope for _, envelope in group]


def envelopes_in(body: bytes) -> Sequence[Envelope | BadEnvelope]:
    """Every envelope of a queue message; one that cannot be decoded does not affect the others."""
    try:
        if body.startswith(b"["):
            return _several.decode(body) or [BadEnvelope(body, None, "holds no envelope")]
        return [_one.decode(body)]
    except (ValueError, RecursionError) as wrong:
        return _one_by_one(body, str(wrong))


def _one_by_one(body: bytes, reason: str) -> Sequence[Envelope | BadEnvelope]:
    try:
        parts = [bytes(part) for part in _parts.decode(body)]
    except (ValueError, RecursionError):
        return [BadEnvelope(body, _message_id(body), reason)]
    return [_decoded(part) for part in parts] or [BadEnvelope(body, None, "holds no envelope")]


def _decoded(part: bytes) -> Envelope | BadEnvelope:
    try:
        return _one.decode(part)
    except (ValueError, RecursionError) as wrong:
        return BadEnvelope(part, _message_id(part), str(wrong))


def _message_id(body: bytes) -> str | None:
    """The id of a message that is otherwise wrong, so that its error can be looked up by it."""
    try:
        raw = msgspec.json.decode(body, type=dict[str, msgspec.Raw]).get("message_id")
        return msgspec.json.decode(raw, type=str)[:LONGEST_ID] or None if raw else None
    except (ValueError, RecursionError):
        return None
