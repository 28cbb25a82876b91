"""Queues in SQLite or PostgreSQL: messages are kept, leased and deleted in the blocks they were sent in.

A block is one row however many messages it holds, so a message costs no more than its bytes. A message leaves its
block only when it fares differently from its neighbours; from the third receive on each is received alone, so that a
message that kills its reader does not affect others.

A receipt names a block, the lease of its receive and a position. Messages that leave a block while in flight keep their
positions, and `origin` is the block that their receipts name.
"""

import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from leanops.adapters.sql.database import NUMBERED, Database
from leanops.domain.errors import PermanentError, QueueUnavailableError
from leanops.domain.groups import batched, in_groups
from leanops.ports.queue import DEAD, MAX_RECEIVES, RETENTION_MS, Depth, Outgoing, Receipt, Received, dead_letter_queue

BLOCK_MESSAGES = 1_000
BLOCK_BYTES = 1 << 20
COMES_ALONE = 2
"""After this many failed receives the messages of a block are received one by one."""
LOOK_AHEAD = 64
LONGEST_HIDDEN_MS = 3_600_000

_metadata = sa.MetaData()
_blocks = sa.Table(
    "queue_blocks",
    _metadata,
    sa.Column("id", NUMBERED, primary_key=True, autoincrement=True),
    sa.Column("queue", sa.Text, nullable=False),
    sa.Column("visible_at", sa.BigInteger, nullable=False),
    sa.Column("receives", sa.Integer, nullable=False),
    sa.Column("lease", sa.BigInteger, nullable=False),
    sa.Column("origin", sa.BigInteger),
    sa.Column("messages", sa.Integer, nullable=False),
    sa.Column("positions", sa.Integer, nullable=False),
    sa.Column("sent_at", sa.BigInteger, nullable=False),
    sa.Index("queue_blocks_order", "queue", "id"),
    sa.Index("queue_blocks_origin", "origin"),
    sqlite_autoincrement=True,
)
# A table of its own, because SQLite would rewrite the bodies with every change of a lease.
_bodies = sa.Table(
    "queue_bodies",
    _metadata,
    sa.Column("block", NUMBERED, primary_key=True, autoincrement=False),
    sa.Column("bodies", sa.LargeBinary, nullable=False),
)
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[bytes | None]).decode


class _Receipt(NamedTuple):
    block: int
    lease: int
    position: int


class SqlQueue:
    """The Queue port on a SQLite file (sqlite:///PATH) or a PostgreSQL database (postgresql://…)."""

    max_bytes = 1 << 20

    def __init__(
        self,
        url: str,
        clock_ms: Callable[[], int],
        shortage: Callable[[], str | None] = lambda: None,
        *,
        wait_seconds: float = 10,
    ) -> None:
        self._database = Database(url, wait_seconds, "queue", QueueUnavailableError, _blocks, _bodies)
        self._clock_ms, self._shortage = clock_ms, shortage

    def create(self, queue: str) -> None:
        """A queue needs nothing but its name."""

    def send(self, messages: Sequence[Outgoing]) -> list[int]:
        """All of them in one transaction; none if disk space is short."""
        if reason := self._shortage():
            raise QueueUnavailableError(f"the queue accepts nothing: {reason}")
        if any(len(message.body) > self.max_bytes for message in messages):
            raise PermanentError(
                f"a message is larger than the {self.max_bytes:,} bytes a queue accepts; send it by claim check"
            )
        by_queue: dict[str, list[bytes]] = defaultdict(list)
        for message in messages:
            by_queue[message.queue].append(message.body)
        now = self._clock_ms()

        def insert(connection: Connection) -> None:
            for queue, bodies in by_queue.items():
                for block in in_groups(bodies, len, most=BLOCK_MESSAGES, most_bytes=BLOCK_BYTES):
                    _insert(connection, block, queue=queue, visible_at=0, receives=0, sent_at=now)

        self._database.transact(insert)
        return []

    def receive(self, queue: str, at_most: int, visibility_s: float) -> list[Received]:
        """Whole blocks in the order they were sent, up to the limit; a block is split only if it is the first."""
        now, lease = self._clock_ms(), secrets.randbits(62)

        def take(connection: Connection) -> list[Received]:
            visible = self._visible(connection, queue, now)
            while _settled(connection, visible, now):
                visible = self._visible(connection, queue, now)
            blocks = _fitting(connection, visible, at_most)
            return _lease(connection, blocks, lease, now + _ms(visibility_s)) if blocks else []

        return self._database.transact(take)

    def delete(self, queue: str, receipts: Sequence[Receipt]) -> list[Receipt]:
        def remove(connection: Connection) -> list[Receipt]:
            whole, parts, lost = _held(connection, receipts)
            _drop(connection, whole)
            for block, positions in parts.items():
                _take_out(connection, block, positions)
            return lost

        return self._database.transact(remove)

    def change_visibility(self, queue: str, receipts: Sequence[Receipt], seconds: float) -> None:
        """Messages whose neighbours are not named get a block of their own; every receipt stays valid."""
        until = self._clock_ms() + _ms(seconds)

        def hide(connection: Connection) -> None:
            whole, parts, _ = _held(connection, receipts)
            _change(connection, whole, visible_at=until)
            for block, positions in parts.items():
                bodies = _sparse(_take_out(connection, block, positions))
                origin = block.origin or block.id
                _insert(connection, bodies, block, visible_at=until, lease=block.lease, origin=origin)

        self._database.transact(hide)

    def give_back(self, queue: str, receipts: Sequence[Receipt]) -> None:
        """As if they had not been received; their receipts are no longer valid."""
        now = self._clock_ms()

        def show(connection: Connection) -> None:
            whole, parts, _ = _held(connection, receipts)
            _change(connection, whole, visible_at=now, receives=_blocks.c.receives - 1, lease=0, origin=None)
            for block, positions in parts.items():
                bodies = list(_take_out(connection, block, positions).values())
                _insert(connection, bodies, block, visible_at=now, receives=block.receives - 1)

        self._database.transact(show)

    def depth(self, queue: str) -> Depth:
        now = self._clock_ms()
        visible = sa.case((_is_visible(now), _blocks.c.messages), else_=0)
        counts = sa.select(
            sa.func.coalesce(sa.func.sum(visible), 0),
            sa.func.coalesce(sa.func.sum(_blocks.c.messages), 0),
            sa.func.min(_blocks.c.sent_at),
        ).where(_blocks.c.queue == queue, _blocks.c.sent_at >= now - RETENTION_MS)
        waiting, messages, oldest = self._database.run(lambda connection: connection.execute(counts).one())
        return Depth(int(waiting), int(messages - waiting), oldest)

    def depths(self) -> dict[str, Depth]:
        statement = sa.select(_blocks.c.queue).distinct().order_by(_blocks.c.queue)
        names = self._database.run(lambda connection: connection.execute(statement).scalars().all())
        return {name: self.depth(name) for name in names}

    def ready(self) -> list[str]:
        waiting = sa.select(_blocks.c.queue).where(_is_visible(self._clock_ms()))
        names = waiting.group_by(_blocks.c.queue).order_by(sa.func.min(_blocks.c.id))
        return list(self._database.run(lambda connection: connection.execute(names).scalars().all()))

    def close(self) -> None:
        self._database.close()

    def _visible(self, connection: Connection, queue: str, now: int) -> Sequence[Any]:
        visible = sa.select(_blocks).where(_blocks.c.queue == queue, _is_visible(now))
        first = visible.order_by(_blocks.c.id).limit(LOOK_AHEAD)
        # Two readers of PostgreSQL must not wait for each other; SQLite has one at a time.
        first = first.with_for_update(skip_locked=True) if self._database.dialect == "postgresql" else first
        return connection.execute(first).fetchall()


def _ms(seconds: float) -> int:
    return min(int(seconds * 1000), LONGEST_HIDDEN_MS)


def _is_visible(now: int) -> sa.ColumnElement[bool]:
    """A block hidden for longer than possible is visible too: it was received before the clock was set back."""
    return sa.not_(_blocks.c.visible_at.between(now + 1, now + LONGEST_HIDDEN_MS))


def _insert(connection: Connection, bodies: Sequence[bytes | None], like: Any = None, **columns: Any) -> Any:
    """A new block; what `columns` does not set is copied from `like`."""
    kept = {"queue": like.queue, "receives": like.receives, "sent_at": like.sent_at} if like is not None else {}
    messages = len(bodies) - bodies.count(None)
    row = {"lease": 0, "messages": messages, "positions": len(bodies), **kept, **columns}
    block = connection.execute(sa.insert(_blocks).values(row).returning(_blocks)).one()
    connection.execute(sa.insert(_bodies).values(block=block.id, bodies=_pack(bodies)))
    return block


def _settled(connection: Connection, blocks: Sequence[Any], now: int) -> bool:
    """Remove, move or split the blocks that must not be received as they are; whether there were any.

    A message that is too old becomes a dead letter first: the clock may be wrong.
    """
    too_old = [block.id for block in blocks if block.sent_at < now - RETENTION_MS and _is_dead(block)]
    kept = [block for block in blocks if not _is_dead(block)]
    dead = [block for block in kept if block.receives >= MAX_RECEIVES or block.sent_at < now - RETENTION_MS]
    failing = [block for block in kept if block not in dead and block.receives >= COMES_ALONE and block.messages > 1]
    _drop(connection, too_old)
    if dead:
        moved = {"queue": dead_letter_queue(dead[0].queue), "receives": 0, "visible_at": 0, "lease": 0, "origin": None}
        _change(connection, [block.id for block in dead], **moved, sent_at=now)
    for block in failing:
        for body in _present(connection, block.id).values():
            _insert(connection, [body], block, visible_at=block.visible_at)
        _drop(connection, [block.id])
    return bool(too_old or dead or failing)


def _is_dead(block: Any) -> bool:
    return bool(block.queue.endswith(DEAD))


def _fitting(connection: Connection, blocks: Sequence[Any], at_most: int) -> list[Any]:
    """The first blocks that fit together; a message that failed before is received alone."""
    together = [block for block in blocks if block.receives < COMES_ALONE or _is_dead(block)]
    if blocks and blocks[0] not in together:
        return [blocks[0]]
    if together and together[0].messages > at_most:
        return [_cut(connection, together[0], at_most)]
    totals = accumulate(block.messages for block in together)
    return [block for block, messages in zip(together, totals, strict=True) if messages <= at_most]


def _cut(connection: Connection, block: Any, at_most: int) -> Any:
    """A block with the first messages of another; the rest keeps its place in the queue, but no receipt."""
    bodies = list(_present(connection, block.id).values())
    left = bodies[at_most:]
    _change(connection, [block.id], messages=len(left), positions=len(left), lease=0, origin=None)
    connection.execute(sa.update(_bodies).where(_bodies.c.block == block.id).values(bodies=_pack(left)))
    return _insert(connection, bodies[:at_most], block, visible_at=0)


def _lease(connection: Connection, blocks: Sequence[Any], lease: int, until: int) -> list[Received]:
    ids = [block.id for block in blocks]
    _change(connection, ids, visible_at=until, lease=lease, origin=None, receives=_blocks.c.receives + 1)
    packed = sa.select(_bodies.c.block, _bodies.c.bodies).where(_bodies.c.block.in_(ids))
    bodies = {block: _unpack(content) for block, content in connection.execute(packed)}
    return [
        Received(body, _Receipt(block.id, lease, position), block.receives + 1)
        for block in blocks
        for position, body in enumerate(bodies[block.id])
        if body is not None
    ]


def _held(connection: Connection, receipts: Sequence[Any]) -> tuple[list[int], dict[Any, list[int]], list[Receipt]]:
    """Blocks that the receipts cover entirely, blocks they cover in part, and receipts that are no longer valid."""
    wanted: dict[tuple[int, int], set[int]] = defaultdict(set)
    for number, lease, position in receipts:
        wanted[number, lease].add(position)
    whole: list[int] = []
    parts: dict[Any, list[int]] = {}
    for block in _named(connection, sorted({number for number, _ in wanted})):
        left = wanted.get((block.origin or block.id, block.lease))
        if not left:
            continue
        # Only a block without gaps is known by its counts: a message that was taken out of it may be named again.
        is_full = block.origin is None and block.messages == block.positions == len(left)
        present = left if is_full else _present(connection, block.id).keys()
        covered = left & present
        if len(covered) == block.messages:
            whole.append(block.id)
        elif covered:
            parts[block] = sorted(covered)
        left -= covered
    lost: list[Receipt] = [_Receipt(*key, position) for key, left in wanted.items() for position in sorted(left)]
    return whole, parts, lost


def _change(connection: Connection, blocks: Sequence[int], **values: Any) -> None:
    for ids in batched(blocks, 500):
        connection.execute(sa.update(_blocks).where(_blocks.c.id.in_(ids)).values(values))


def _named(connection: Connection, numbers: Sequence[int]) -> Iterator[Any]:
    """The blocks that receipts with these numbers may refer to, locked."""
    for some in batched(numbers, 500):
        named = sa.select(_blocks).where(sa.or_(_blocks.c.id.in_(some), _blocks.c.origin.in_(some)))
        yield from connection.execute(named.order_by(_blocks.c.id).with_for_update()).fetchall()


def _present(connection: Connection, block: int) -> dict[int, bytes]:
    """The messages a block still has, by position."""
    packed = connection.execute(sa.select(_bodies.c.bodies).where(_bodies.c.block == block)).scalar_one()
    return {position: body for position, body in enumerate(_unpack(packed)) if body is not None}


def _take_out(connection: Connection, block: Any, positions: Iterable[int]) -> dict[int, bytes]:
    """Remove some messages from a block, but not all; the others keep their positions, and so their receipts."""
    present = _present(connection, block.id)
    taken = {position: present.pop(position) for position in positions}
    connection.execute(sa.update(_bodies).where(_bodies.c.block == block.id).values(bodies=_pack(_sparse(present))))
    _change(connection, [block.id], messages=len(present))
    return taken


def _sparse(bodies: Mapping[int, bytes]) -> list[bytes | None]:
    return [bodies.get(position) for position in range(max(bodies) + 1)]


def _drop(connection: Connection, ids: Sequence[int]) -> None:
    for some in batched(ids, 500):
        connection.execute(sa.delete(_blocks).where(_blocks.c.id.in_(some)))
        connection.execute(sa.delete(_bodies).where(_bodies.c.block.in_(some)))
