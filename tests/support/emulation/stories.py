"""Small emulations: their scenarios and messages, without a home and without Spark."""

from datetime import UTC, datetime, timedelta

from leanops.emulation.events.generator import Message
from leanops.emulation.events.kinds import Kind
from leanops.emulation.scenario import DAYS, Scenario
from tests.oracle.rows import RawRow

EVERYTHING = (
    "new=0.05,cross_period=0.04,far_period=0.04,duplicate=0.08,redelivery=0.06,late=0.06,drift=0.15,"
    "cde=0.12,bad_type=0.06,bad_rule=0.06,bad_time=0.06,malformed=0.05,oversized=0"
)
"""Every kind often, but for those of a megabyte."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def story(seed: int = 1, topics: int = 4, rates: str = EVERYTHING, **events: int) -> Scenario:
    """A scenario with N events of each day."""
    return Scenario(seed=seed, topics=topics, rates=rates, events=events)


def messages_of(scenario: Scenario, topic: str, phase: str) -> list[Message]:
    """All messages of a topic in a phase."""
    stream = scenario.stream(topic, phase)
    return [message for index in range(stream.chunks) for message in stream.chunk(index)]


def all_messages(scenario: Scenario, topic: str) -> list[Message]:
    """All messages of a topic in the order in which they are sent."""
    return [message for phase in DAYS for message in messages_of(scenario, topic, phase)]


def moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def raw_row(topic: str, message: Message) -> RawRow:
    """A message as RAW holds it."""
    return RawRow(
        message.message_id,
        moment(message.publish_us),
        topic,
        message.text,
        message.ingestion_ms,
        message.idempotency_key,
        message.attributes,
    )


def is_copy(message: Message) -> bool:
    return message.kind in (Kind.DUPLICATE, Kind.REDELIVERY)
