"""The buffer of our own delivery stream in SQLite or PostgreSQL: each put is one row."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from leanops.adapters.sql.database import NUMBERED, Database
from leanops.domain.errors import DeliveryUnavailableError
from leanops.domain.groups import batched, in_groups
from leanops.ports.delivery import Waiting

_metadata = sa.MetaData()
_puts = sa.Table(
    "delivery_puts",
    _metadata,
    sa.Column("id", NUMBERED, primary_key=True, autoincrement=True),
    sa.Column("flush_id", sa.Text),
    sa.Column("put_at", sa.BigInteger, nullable=False),
    sa.Column("records", sa.Integer, nullable=False),
    sa.Column("bytes", sa.Integer, nullable=False),
    sa.Index("delivery_puts_flush", "flush_id", "id"),
    # A stalled reader must not get other records under an id it has read.
    sqlite_autoincrement=True,
)
# A table of its own, because SQLite would rewrite the lines when a flush claims them.
_lines = sa.Table(
    "delivery_lines",
    _metadata,
    sa.Column("put", NUMBERED, primary_key=True, autoincrement=False),
    sa.Column("lines", sa.LargeBinary, nullable=False),
)
_flushes = sa.Table(
    "delivery_flushes",
    _metadata,
    sa.Column("flush_id", sa.Text, primary_key=True),
    sa.Column("lease_until", sa.BigInteger, nullable=False),
)
PUTS_PER_CLAIM = 5_000
LONGEST_LEASE_MS = 900_000


class SqlBuffer:
    """The Delivery and Buffer ports on a SQLite file or a PostgreSQL database."""

    def __init__(self, url: str, clock_ms: Callable[[], int], *, lease_s: float = 60, wait_seconds: float = 10) -> None:
        self._database = Database(url, wait_seconds, "delivery", DeliveryUnavailableError, _puts, _lines, _flushes)
        self._clock_ms, self._lease_ms = clock_ms, int(lease_s * 1000)

    def put(self, records: Sequence[bytes]) -> list[int]:
        """All of them in one transaction."""
        now = self._clock_ms()
        if records:
            self._database.transact(lambda connection: _insert(connection, records, put_at=now))
        return []

    def waiting(self) -> Waiting:
        free = _puts.c.flush_id.is_(None)
        counts = sa.select(
            sa.func.coalesce(sa.func.sum(_puts.c.records).filter(free), 0),
            sa.func.coalesce(sa.func.sum(_puts.c.bytes).filter(free), 0),
            sa.func.min(_puts.c.put_at).filter(free),
            sa.func.coalesce(sa.func.sum(_puts.c.records).filter(~free), 0),
        )
        records, size, oldest, claimed = self._database.run(lambda connection: connection.execute(counts).one())
        return Waiting(int(records), int(size), oldest, int(claimed))

    def hurry(self) -> None:
        """Dated back to 1970, a put is due."""
        due = sa.update(_puts).where(_puts.c.flush_id.is_(None)).values(put_at=0)
        self._database.run(lambda connection: connection.execute(due))

    def holds_before(self, moment_ms: int) -> bool:
        older = sa.select(sa.exists().where(_puts.c.put_at <= moment_ms))
        return bool(self._database.run(lambda connection: connection.execute(older).scalar_one()))

    def claim(self, flush_id: str, at_most_bytes: int) -> bool:
        """Row by row: ids commit out of order, so a range of ids could claim puts that were never read."""
        mine = sa.select(sa.exists().where(_flushes.c.flush_id == flush_id))

        def take(connection: Connection) -> bool:
            # The claim exists if this is repeated because the connection broke before the answer.
            if connection.execute(mine).scalar_one():
                return True
            oldest = sa.select(_puts.c.id, _puts.c.bytes).where(_puts.c.flush_id.is_(None)).order_by(_puts.c.id)
            skipping = oldest.limit(PUTS_PER_CLAIM).with_for_update(skip_locked=True)
            puts = next(in_groups(connection.execute(skipping), lambda put: put.bytes, most_bytes=at_most_bytes), [])
            if not puts:
                return False
            until = self._clock_ms() + self._lease_ms
            connection.execute(sa.insert(_flushes).values(flush_id=flush_id, lease_until=until))
            for some in batched([put.id for put in puts], 500):
                connection.execute(sa.update(_puts).where(_puts.c.id.in_(some)).values(flush_id=flush_id))
            return True

        return self._database.transact(take)

    def renew(self, flush_id: str) -> None:
        until = self._clock_ms() + self._lease_ms
        kept = sa.update(_flushes).where(_flushes.c.flush_id == flush_id).values(lease_until=until)
        self._database.run(lambda connection: connection.execute(kept))

    def take_over(self) -> str | None:
        now = self._clock_ms()
        # A lease longer than the longest was written before the clock was set back.
        is_over = sa.not_(_flushes.c.lease_until.between(now, now + LONGEST_LEASE_MS))
        late = sa.select(_flushes.c.flush_id).where(is_over).order_by(_flushes.c.lease_until).limit(1)
        mine = (
            sa.update(_flushes)
            .where(_flushes.c.flush_id == late.scalar_subquery(), is_over)
            .values(lease_until=now + self._lease_ms)
            .returning(_flushes.c.flush_id)
        )
        return self._database.run(lambda connection: connection.execute(mine).scalar_one_or_none())

    def unfinished(self) -> set[str]:
        """Including those of workers that have ended."""
        ids = sa.select(_flushes.c.flush_id)
        return set(self._database.run(lambda connection: connection.execute(ids).scalars().all()))

    def lines(self, flush_id: str) -> Iterator[bytes]:
        """One put at a time, so that memory holds only one."""
        ids = sa.select(_puts.c.id).where(_puts.c.flush_id == flush_id).order_by(_puts.c.id)
        for put in self._database.run(lambda connection: connection.execute(ids).scalars().all()):
            lines = self._lines_of(put)
            # A worker that held the claim before may have landed and forgotten it meanwhile.
            if lines is not None:
                yield lines

    def _lines_of(self, put: int) -> bytes | None:
        content = sa.select(_lines.c.lines).where(_lines.c.put == put)
        return self._database.run(lambda connection: connection.execute(content).scalar_one_or_none())

    def keep(self, flush_id: str, records: Sequence[bytes], retry_s: float) -> None:
        """One put replaces those of the claim; a claim that is gone is not re-created."""
        until = self._clock_ms() + min(int(retry_s * 1000), LONGEST_LEASE_MS)
        waits = sa.update(_flushes).where(_flushes.c.flush_id == flush_id).values(lease_until=until)
        oldest = sa.select(sa.func.min(_puts.c.put_at)).where(_puts.c.flush_id == flush_id)

        def replace(connection: Connection) -> None:
            if not connection.execute(waits).rowcount:
                return
            put_at = connection.execute(oldest).scalar()
            _delete(connection, flush_id)
            _insert(connection, records, put_at=put_at or 0, flush_id=flush_id)

        self._database.transact(replace)

    def forget(self, flush_id: str) -> None:
        def delete(connection: Connection) -> None:
            _delete(connection, flush_id)
            connection.execute(sa.delete(_flushes).where(_flushes.c.flush_id == flush_id))

        self._database.transact(delete)

    def close(self) -> None:
        self._database.close()


def _insert(connection: Connection, records: Sequence[bytes], **columns: Any) -> None:
    lines = b"\n".join(records)
    row = {"records": len(records), "bytes": len(lines), **columns}
    put = connection.execute(sa.insert(_puts).values(row).returning(_puts.c.id)).scalar_one()
    connection.execute(sa.insert(_lines).values(put=put, lines=lines))


def _delete(connection: Connection, flush_id: str) -> None:
    mine = sa.select(_puts.c.id).where(_puts.c.flush_id == flush_id)
    connection.execute(sa.delete(_lines).where(_lines.c.put.in_(mine)))
    connection.execute(sa.delete(_puts).where(_puts.c.flush_id == flush_id))
