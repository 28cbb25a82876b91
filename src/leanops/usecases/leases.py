"""Leases: one worker per topic, with a generation that fences off whoever had it before.

The generation makes it safe to end a lease early: whoever still works under it cannot commit.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from leanops.domain.errors import LeaseHeldError, LeaseLostError, RetryableError, StateConflictError
from leanops.domain.leases import MARK, Held, holder, lasts
from leanops.ports.clock import moment
from leanops.ports.state import LOCKS, Row, Stored
from leanops.usecases.audit import record_action
from leanops.usecases.platform import Platform

LOOK_AGAIN_S = 0.2


@dataclass(frozen=True)
class Lease:
    """Proof of the right to work on a resource, until it expires or is taken over."""

    resource: str
    owner: str
    generation: int


@dataclass(frozen=True)
class HeldTopic:
    """A topic under its lease, with the platform it is worked on: what the steps that change its tables are given."""

    platform: Platform
    topic: str
    lease: Lease

    def check(self) -> None:
        """Raise LeaseLostError unless the topic is still ours."""
        check(self.platform, self.lease)

    def is_ours(self) -> bool:
        """Whether the topic is still ours."""
        return is_held(self.platform, self.lease)

    def is_overtaken(self, stored: Stored | None) -> bool:
        """Whether a row of the state store was written under a later generation of the lease."""
        return stored is not None and int(stored.row["generation"] or 0) > self.lease.generation


def acquire(platform: Platform, resource: str) -> Lease:
    """Take a free or expired lease; raises LeaseHeldError if another worker holds it."""
    stored = platform.state.get(LOCKS, (resource,))
    if stored and (holder := _holder(platform, stored.row)):
        raise LeaseHeldError(resource, holder.owner, moment(holder.until_ms))
    lease = Lease(resource, platform.owner, _next_generation(stored))
    try:
        platform.state.put(LOCKS, _row(platform, lease, _until(platform)), expected=_revision(stored))
    except StateConflictError:
        raise LeaseHeldError(resource, "another worker") from None
    return lease


def check(platform: Platform, lease: Lease) -> None:
    """Raise LeaseLostError unless the lease is still ours and has not expired."""
    if not is_held(platform, lease):
        raise LeaseLostError(lease.resource, lease.generation)


def is_held(platform: Platform, lease: Lease) -> bool:
    """Whether the lease is still ours and has not expired."""
    stored = platform.state.get(LOCKS, (lease.resource,))
    is_ours = stored is not None and stored.row["generation"] == lease.generation
    return stored is not None and is_ours and lasts(stored.row, platform.now_ms(), _lease_ms(platform))


def unlock(platform: Platform, resource: str) -> Held | None:
    """End a lease and fence off its holder; returns who that was, or None if nobody held it."""
    stored = platform.state.get(LOCKS, (resource,))
    holder = _holder(platform, stored.row) if stored else None
    if stored and holder:
        ended = _row(platform, Lease(resource, platform.owner, _next_generation(stored)), 0)
        platform.state.put(LOCKS, ended, expected=stored.revision)
        record_action(platform, "topics unlock", [resource.removeprefix("topic/")], {"held": holder.sentence()})
    return holder


def holder_of(platform: Platform, resource: str) -> Held | None:
    """Who holds a lease now."""
    stored = platform.state.get(LOCKS, (resource,))
    return _holder(platform, stored.row) if stored else None


def _holder(platform: Platform, row: Row) -> Held | None:
    return holder(row, platform.now_ms(), _lease_ms(platform), platform.processes.has_ended)


def renew(platform: Platform, lease: Lease) -> None:
    """Extend the lease; raises LeaseLostError if it was taken over."""
    _write(platform, lease, _until(platform))


def release(platform: Platform, lease: Lease) -> None:
    """Give the lease back; the generation stays, so that it can only rise."""
    _write(platform, lease, 0)


def _write(platform: Platform, lease: Lease, until: int) -> None:
    stored = platform.state.get(LOCKS, (lease.resource,))
    if stored is None or stored.row["generation"] != lease.generation:
        raise LeaseLostError(lease.resource, lease.generation)
    try:
        platform.state.put(LOCKS, _row(platform, lease, until), expected=stored.revision)
    except StateConflictError:
        raise LeaseLostError(lease.resource, lease.generation) from None


def _row(platform: Platform, lease: Lease, until: int) -> Row:
    mark = platform.processes.mark
    return {
        "resource": lease.resource,
        "owner": f"{lease.owner}{MARK}{mark}" if mark else lease.owner,
        "generation": lease.generation,
        "lease_until": until,
    }


def _next_generation(stored: Stored | None) -> int:
    return 1 + int(stored.row["generation"] or 0) if stored else 1


def _revision(stored: Stored | None) -> int | None:
    return stored.revision if stored else None


def _until(platform: Platform) -> int:
    return platform.now_ms() + _lease_ms(platform)


def _lease_ms(platform: Platform) -> int:
    return platform.rules.pipeline.lease_s * 1000


@contextmanager
def held(platform: Platform, resource: str, *, wait_s: float = 0) -> Iterator[Lease]:
    """Work under a lease that is renewed in the background; a killed process leaves it to expire.

    Waits up to `wait_s` seconds for a lease that another worker holds.
    """
    lease = _acquired(platform, resource, time.monotonic() + wait_s)
    done = threading.Event()
    heart = threading.Thread(target=_beat, args=(platform, lease, done), name=f"lease-{resource}", daemon=True)
    heart.start()
    try:
        yield lease
    except (Exception, KeyboardInterrupt):
        _let_go(platform, lease, heart, done)
        raise
    else:
        _let_go(platform, lease, heart, done)
    finally:
        done.set()


@contextmanager
def hold_topic(platform: Platform, topic: str, *, wait_s: float = 0) -> Iterator[HeldTopic]:
    """Work on a topic under its lease, as `held` does for any resource."""
    with held(platform, f"topic/{topic}", wait_s=wait_s) as lease:
        yield HeldTopic(platform, topic, lease)


def _acquired(platform: Platform, resource: str, deadline: float) -> Lease:
    while True:
        try:
            return acquire(platform, resource)
        except LeaseHeldError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(LOOK_AGAIN_S)


def _beat(platform: Platform, lease: Lease, done: threading.Event) -> None:
    while not done.wait(platform.rules.pipeline.lease_s / 3):
        try:
            renew(platform, lease)
        except LeaseLostError:
            return
        except RetryableError:
            continue  # the store may be back before the lease ends


def _let_go(platform: Platform, lease: Lease, heart: threading.Thread, done: threading.Event) -> None:
    # A last heartbeat after the release would take the lease again.
    done.set()
    heart.join()
    # Taken over, or the store is unavailable: either way the lease ends by itself.
    with suppress(RetryableError):
        release(platform, lease)
