"""One SQLite file or PostgreSQL database: opened, shared by threads, and answered for in one line when it fails."""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.schema import CreateIndex, CreateTable
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from leanops.domain.errors import LeanOpsError, PermanentError, RetryableError, StateUnavailableError

Answer = TypeVar("Answer")
Item = TypeVar("Item")

# serialization_failure, deadlock_detected, lock_not_available
CONTENTION = {"40001", "40P01", "55P03"}
# read_only_sql_transaction, idle_in_transaction_session_timeout: this server is not the one that writes, just now.
FAILOVER = {"25006", "25P03"}


class Database:
    """Runs work on a connection of its own, each statement its own transaction; waits out short contention."""

    def __init__(
        self,
        url: str,
        *,
        wait_seconds: float = 10,
        holds: str = "state",
        unavailable: type[RetryableError] = StateUnavailableError,
        tables: Sequence[sa.Table] = (),
    ) -> None:
        self._url = _parse(url)
        self._holds, self._unavailable = holds, unavailable
        self._unmade, self._making = tables, threading.Lock()
        self._engine = _open(self._url, wait_seconds)
        self._process = os.getpid()
        self._inherited: list[object] = []
        self._contention = Retrying(
            retry=retry_if_exception(_is_contention),
            stop=stop_after_delay(wait_seconds),
            wait=wait_random_exponential(multiplier=0.01, max=0.5),
            reraise=True,
        )

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.dialect.name

    def run(self, work: Callable[[Connection], Answer]) -> Answer:
        """What the work answers; after a broken connection it is repeated, though it may have taken effect."""
        self._leave_parents_connections()
        if self._unmade:
            self._make()
        return self._answered(work)

    def _answered(self, work: Callable[[Connection], Answer]) -> Answer:
        try:
            answer: Answer = self._contention(self._attempt, work)
            return answer
        except SQLAlchemyError as error:
            raise self._translated(error) from error

    def transact(self, work: Callable[[Connection], Answer]) -> Answer:
        """What the work answers, all of its statements in one transaction; repeated like `run`."""

        def in_transaction(connection: Connection) -> Answer:
            # SQLite's plain BEGIN would read first and find the file locked when it comes to write.
            connection.exec_driver_sql("BEGIN IMMEDIATE" if self.dialect == "sqlite" else "BEGIN")
            try:
                answer = work(connection)
                connection.exec_driver_sql("COMMIT")
            except BaseException:
                with suppress(SQLAlchemyError):
                    connection.exec_driver_sql("ROLLBACK")
                raise
            return answer

        return self.run(in_transaction)

    def close(self) -> None:
        """Close every connection; new ones are opened if the database is used again."""
        self._engine.dispose()

    def _make(self) -> None:
        # Other threads wait for the tables, and find them made.
        with self._making:
            tables = self._unmade
            self._answered(lambda connection: make_tables(connection, tables))
            self._unmade = ()

    def _attempt(self, work: Callable[[Connection], Answer]) -> Answer:
        with self._engine.connect() as connection:
            return work(connection)

    def _leave_parents_connections(self) -> None:
        if self._process == os.getpid():
            return
        # A forked child must neither use nor close the sockets and file locks of its parent, so it keeps them unused.
        self._inherited.append(self._engine.pool)
        self._engine.dispose(close=False)
        self._process = os.getpid()

    def _translated(self, error: SQLAlchemyError) -> LeanOpsError:
        url, holds = self._url, self._holds
        lines = str(getattr(error, "orig", None) or error).splitlines() or [type(error).__name__]
        reason = lines[0].replace(url.password, "***") if url.password else lines[0]
        if url.drivername == "sqlite":
            place, advice = f"{holds} file {url.database}", "check that its folder can be written and has space"
        else:
            place = f"{holds} database {url.database} on {url.host}:{url.port or 5432}"
            advice = "check that it runs, its address and its password"
        is_away = getattr(getattr(error, "orig", None), "sqlstate", None) in FAILOVER
        if is_away or isinstance(error, OperationalError | InterfaceError | PoolTimeoutError):
            return self._unavailable(f"{place} does not answer ({reason}); {advice}, then try again")
        return PermanentError(
            f"{place} refuses ({reason}); check that it is a Lean-Ops store which this user may change"
        )


def make_tables(connection: Connection, tables: Iterable[sa.Table]) -> None:
    """Create what is not there yet, with its indexes."""
    for table in tables:
        try:
            connection.execute(CreateTable(table, if_not_exists=True))
            for index in table.indexes:
                connection.execute(CreateIndex(index, if_not_exists=True))
        except (IntegrityError, ProgrammingError):
            # Two processes may both find it missing, and PostgreSQL refuses a role without CREATE before it looks.
            if not sa.inspect(connection).has_table(table.name):
                raise


def add_columns(connection: Connection, table: sa.Table) -> None:
    """Add the columns that a table of an earlier version does not have; they hold nothing in its rows."""
    for column in _missing(connection, table):
        kind = column.type.compile(connection.dialect)
        try:
            connection.exec_driver_sql(f'ALTER TABLE "{table.name}" ADD COLUMN "{column.name}" {kind}')
        except (OperationalError, ProgrammingError):
            # Two processes may both find it missing.
            if column in _missing(connection, table):
                raise


def _missing(connection: Connection, table: sa.Table) -> list[sa.Column[Any]]:
    known = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
    return [column for column in table.columns if column.name not in known]


def batched(values: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """The values in pieces that a statement can hold."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def _parse(url: str) -> URL:
    try:
        parsed = sa.make_url(url)
    except ArgumentError:
        parsed = URL.create("unreadable")
    if parsed.drivername in {"postgres", "postgresql"}:
        parsed = parsed.set(drivername="postgresql+psycopg")
    in_file = parsed.drivername == "sqlite" and parsed.database not in {None, "", ":memory:"}
    if not in_file and parsed.drivername != "postgresql+psycopg":
        raise PermanentError(
            "the state URL names no store; write sqlite:///state.db or postgresql://user@host/database"
        )
    return parsed


def _open(url: URL, wait_seconds: float) -> Engine:
    shared: dict[str, Any] = {"isolation_level": "AUTOCOMMIT", "hide_parameters": True}
    if url.drivername == "sqlite":
        Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
        engine = sa.create_engine(url, connect_args={"timeout": wait_seconds}, **shared)
        sa.event.listen(engine, "connect", _use_wal)
        return engine
    limits = {"connect_timeout": 10, "tcp_user_timeout": 30_000}
    arguments = {name: value for name, value in limits.items() if name not in url.query}
    try:
        return sa.create_engine(url, connect_args=arguments, pool_pre_ping=True, pool_size=8, max_overflow=24, **shared)
    except ModuleNotFoundError as error:
        raise PermanentError("PostgreSQL needs psycopg; install it with: pip install 'leanops[cluster]'") from error


def _use_wal(connection: sqlite3.Connection, _: object) -> None:
    # Readers and the one writer do not block each other; each commit is still synced, because batches rely on it.
    connection.execute("PRAGMA journal_mode=WAL").close()
    connection.execute("PRAGMA synchronous=FULL").close()


def _is_contention(error: BaseException) -> bool:
    if not isinstance(error, DBAPIError):
        return False
    if isinstance(error.orig, sqlite3.Error):
        return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
    return error.connection_invalidated or getattr(error.orig, "sqlstate", None) in CONTENTION
