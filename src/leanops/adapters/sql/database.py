"""One SQLite file or PostgreSQL database, shared by threads; its failures become one line of ours."""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterable
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

from leanops.domain.errors import LeanOpsError, PermanentError, RetryableError

Answer = TypeVar("Answer")

NUMBERED = sa.BigInteger().with_variant(sa.Integer, "sqlite")
"""A key that the database numbers: SQLite does so only for an INTEGER."""
# serialization_failure, deadlock_detected, lock_not_available
CONTENTION = {"40001", "40P01", "55P03"}
# read_only_sql_transaction, idle_in_transaction_session_timeout: this server is not the primary right now.
FAILOVER = {"25006", "25P03"}


class Database:
    """Runs work on a connection of its own, each statement its own transaction; waits out short contention."""

    def __init__(
        self, url: str, wait_seconds: float, holds: str, unavailable: type[RetryableError], *tables: sa.Table
    ) -> None:
        self._url, self._holds, self._unavailable = _parse(url), holds, unavailable
        self._missing, self._creating = tables, threading.Lock()
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
        """What the work returns; after a broken connection it is repeated, though it may have taken effect."""
        self._leave_parents_connections()
        if self._missing:
            # Other threads wait until the tables exist.
            with self._creating:
                tables = self._missing
                self._answered(lambda connection: create_tables(connection, tables))
                self._missing = ()
        return self._answered(work)

    def _answered(self, work: Callable[[Connection], Answer]) -> Answer:
        try:
            answer: Answer = self._contention(self._attempt, work)
            return answer
        except SQLAlchemyError as error:
            raise self._translated(error) from error

    def transact(self, work: Callable[[Connection], Answer]) -> Answer:
        """What the work returns, all of its statements in one transaction; repeated like `run`."""

        def in_transaction(connection: Connection) -> Answer:
            # After SQLite's plain BEGIN a transaction reads first, and may find the file locked when it writes.
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

    def _attempt(self, work: Callable[[Connection], Answer]) -> Answer:
        with self._engine.connect() as connection:
            return work(connection)

    def _leave_parents_connections(self) -> None:
        if self._process == os.getpid():
            return
        # A forked child must neither use nor close the sockets and file locks of its parent.
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


def create_tables(connection: Connection, tables: Iterable[sa.Table]) -> None:
    """Create the tables that do not exist yet, with their indexes."""
    for table in tables:
        try:
            connection.execute(CreateTable(table, if_not_exists=True))
            for index in table.indexes:
                connection.execute(CreateIndex(index, if_not_exists=True))
        except (IntegrityError, ProgrammingError):
            # Two processes may both find it missing, and PostgreSQL refuses a role without CREATE even if it exists.
            if not sa.inspect(connection).has_table(table.name):
                raise


def add_columns(connection: Connection, table: sa.Table) -> None:
    """Add the columns that a table of an earlier version does not have; they are NULL in its rows."""
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


def _parse(url: str) -> URL:
    try:
        parsed = sa.make_url(url)
    except ArgumentError:
        parsed = URL.create("unreadable")
    if parsed.drivername in {"postgres", "postgresql"}:
        parsed = parsed.set(drivername="postgresql+psycopg")
    in_file = parsed.drivername == "sqlite" and parsed.database not in {None, "", ":memory:"}
    if not in_file and parsed.drivername != "postgresql+psycopg":
        raise PermanentError("the state URL is not valid; write sqlite:///state.db or postgresql://user@host/database")
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
    # Readers and the one writer do not block each other. Each commit is still synced: batches rely on it.
    connection.execute("PRAGMA journal_mode=WAL").close()
    connection.execute("PRAGMA synchronous=FULL").close()


def _is_contention(error: BaseException) -> bool:
    if not isinstance(error, DBAPIError):
        return False
    if isinstance(error.orig, sqlite3.Error):
        return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
    return error.connection_invalidated or getattr(error.orig, "sqlstate", None) in CONTENTION
