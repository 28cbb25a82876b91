"""Pub/Sub over raw gRPC: many streaming pulls in one event loop, on protobuf messages without a wrapper."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import grpc  # type: ignore[import-untyped]
from google.auth import default as find_credentials
from google.auth.exceptions import GoogleAuthError
from google.pubsub_v1.types import pubsub
from grpc import aio

from leanops.domain.errors import PermanentError, SourceUnavailableError
from leanops.ports.source import Pulled, PullLimits

HOST = "pubsub.googleapis.com:443"
SCOPE = "https://www.googleapis.com/auth/pubsub"
STREAMS_PER_CHANNEL = 90
"""A connection carries about 100 calls at a time."""
HEARTBEAT_S = 30
CALL_S = 30
_SERVICE = "/google.pubsub.v1.Subscriber/"
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    # Channels to one address would share one connection, and with it its limit of calls.
    ("grpc.use_local_subchannel_pool", 1),
]
# As Google's own client does, to notice a connection that died silently; the emulator hangs up on such pings.
_KEEPALIVE = ("grpc.keepalive_time_ms", 30_000)
_Pull, _Ack, _Extend = (
    kind.pb() for kind in (pubsub.StreamingPullRequest, pubsub.AcknowledgeRequest, pubsub.ModifyAckDeadlineRequest)
)
_Pulls = pubsub.StreamingPullResponse.pb()


class PubSub:
    """The Source port on Google Cloud Pub/Sub, or on its emulator where an address is given."""

    def __init__(self, emulator: str | None = None) -> None:
        self._emulator = emulator
        self._credentials = None if emulator else _credentials()
        self._seats: list[_Seats] = []
        self._calls: Any = None

    async def pull(
        self, subscription: str, limits: PullLimits, stopping: asyncio.Event
    ) -> AsyncIterator[Sequence[Pulled]]:
        """One streaming pull."""
        first = _Pull(
            subscription=subscription,
            stream_ack_deadline_seconds=limits.lease_s,
            max_outstanding_messages=limits.messages,
            max_outstanding_bytes=limits.bytes,
        )
        with self._seat() as channel, _answering(subscription):
            open_stream = channel.stream_stream(
                _SERVICE + "StreamingPull",
                request_serializer=_Pull.SerializeToString,
                response_deserializer=_Pulls.FromString,
            )
            call = open_stream()
            beating = asyncio.create_task(_heartbeat(call, stopping))
            try:
                await call.write(first)
                # Written, so there is a connection and the call is open.
                yield []
                while (response := await call.read()) is not aio.EOF:
                    yield [_pulled(received) for received in response.received_messages]
            finally:
                beating.cancel()
                call.cancel()

    async def ack(self, subscription: str, ack_ids: Sequence[str]) -> None:
        """One call."""
        await self._call("Acknowledge", _Ack(subscription=subscription, ack_ids=ack_ids))

    async def extend(self, subscription: str, ack_ids: Sequence[str], seconds: int) -> None:
        """One call."""
        request = _Extend(subscription=subscription, ack_ids=ack_ids, ack_deadline_seconds=seconds)
        await self._call("ModifyAckDeadline", request)

    async def close(self) -> None:
        """Close every connection."""
        for channel in [seats.channel for seats in self._seats] + ([self._calls] if self._calls else []):
            await channel.close()
        self._seats, self._calls = [], None

    async def _call(self, method: str, request: Any) -> None:
        # Apart from the streams, which may take all the calls of their connections.
        self._calls = self._calls or self._channel()
        call = self._calls.unary_unary(
            _SERVICE + method, request_serializer=type(request).SerializeToString, response_deserializer=bytes
        )
        with _answering(request.subscription):
            await call(request, timeout=CALL_S)

    @contextmanager
    def _seat(self) -> Iterator[Any]:
        """A channel with room for one more stream."""
        seats = next((seats for seats in self._seats if seats.taken < STREAMS_PER_CHANNEL), None)
        if seats is None:
            seats = _Seats(self._channel())
            self._seats.append(seats)
        seats.taken += 1
        try:
            yield seats.channel
        finally:
            seats.taken -= 1

    def _channel(self) -> Any:
        if self._emulator:
            return aio.insecure_channel(self._emulator, options=_OPTIONS)
        from google.api_core.grpc_helpers_async import create_channel

        return create_channel(HOST, credentials=self._credentials, scopes=[SCOPE], options=[*_OPTIONS, _KEEPALIVE])


class _Seats:
    """A channel, and how many streams it carries."""

    def __init__(self, channel: Any) -> None:
        self.channel, self.taken = channel, 0


def _credentials() -> Any:
    try:
        return find_credentials(scopes=[SCOPE])[0]
    except GoogleAuthError:
        raise PermanentError(
            "no Google credentials in the environment; set GOOGLE_APPLICATION_CREDENTIALS, or run: "
            "gcloud auth application-default login"
        ) from None


async def _heartbeat(call: Any, stopping: asyncio.Event) -> None:
    """Write now and then, because a silent stream is cut; end the stream in good order when stopping."""
    # Whatever ends the stream is raised where it is read.
    with suppress(grpc.RpcError, aio.UsageError, asyncio.InvalidStateError):
        while not stopping.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    await stopping.wait()
            if not stopping.is_set():
                await call.write(_Pull())
        # Cancelled, a stream would take along what is on its way, and that would come again only after its lease.
        await call.done_writing()


def _pulled(received: Any) -> Pulled:
    message = received.message
    published = message.publish_time
    return Pulled(
        received.ack_id,
        message.message_id,
        published.seconds * 1_000_000 + published.nanos // 1_000,
        message.data,
        dict(message.attributes) if message.attributes else {},
        message.ordering_key,
    )


@contextmanager
def _answering(subscription: str) -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as failed:
        code = getattr(failed, "code", lambda: grpc.StatusCode.UNKNOWN)()
        raise SourceUnavailableError(_reason(subscription, code)) from None


def _reason(subscription: str, code: Any) -> str:
    """One line; what the server wrote is left out."""
    if code is grpc.StatusCode.NOT_FOUND:
        return f"{subscription} does not exist; create it, or leave it out"
    if code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED):
        return f"{subscription} may not be read ({code.name}); grant roles/pubsub.subscriber to this account"
    return f"{subscription}: Pub/Sub does not answer ({code.name}); trying again"
