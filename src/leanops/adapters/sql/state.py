"""The state store in SQLite or PostgreSQL: one table per state table, each change one statement of its own."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Dialect

from leanops.adapters.sql.database import Database, add_columns, create_tables
from leanops.domain.errors import StateConflictError, StateUnavailableError
from leanops.domain.groups import batched
from leanops.ports.state import Key, Row, StateTable, Stored, new_revision

REVISION = "revision"
KEYS_PER_STATEMENT = 400
NOTHING: Mapping[str, Any] = {}


class ExactText(sa.types.TypeDecorator[str]):
    """Text that comes back as it went in: PostgreSQL refuses U+0000, which JSON allows, so it is escaped by U+001A."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Escapes U+001A as U+001A 1, and U+0000 as U+001A 0."""
        return value and value.replace("\x1a", "\x1a1").replace("\x00", "\x1a0")

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Reverses the escape."""
        return value and value.replace("\x1a0", "\x00").replace("\x1a1", "\x1a")


COLUMN_TYPES: dict[type, type[sa.types.TypeEngine[Any]]] = {str: ExactText, int: sa.BigInteger, bool: sa.Boolean}


class SqlState:
    """A StateStore in a SQLite file (sqlite:///state.db) or in PostgreSQL (postgresql://user@host/database)."""

    def __init__(self, url: str, *, prefix: str = "", wait_seconds: float = 10, page_rows: int = 500) -> None:
        self._database = Database(url, wait_seconds, "state", StateUnavailableError)
        self._prefix, self._page_rows = prefix, page_rows
        self._tables: dict[str, sa.Table] = {}
        self._gets: dict[str, sa.Select[Any]] = {}

    def get(self, table: StateTable, key: Key) -> Stored | None:
        table.check_key(key)
        target = self._table(table)
        if table.name not in self._gets:
            # To make a statement takes longer than to run it.
            parts = tuple(sa.bindparam(column, type_=ExactText) for column in table.key)
            self._gets[table.name] = sa.select(target).where(_is(target, table, parts))
        rows = self._select(self._gets[table.name], dict(zip(table.key, key, strict=True)))
        return rows[0] if rows else None

    def put(self, table: StateTable, row: Row, *, expected: int | None) -> int:
        revision = new_revision()
        values = {**table.complete(row), REVISION: revision}
        target, key = self._table(table), table.key_of(row)
        written = target.c[REVISION]
        statement: sa.Executable
        if expected is None:
            statement = self._insert(target).values(values).on_conflict_do_nothing().returning(written)
        else:
            statement = sa.update(target).where(_is(target, table, key, expected)).values(values).returning(written)
        if self._database.run(lambda connection: connection.execute(statement).scalar_one_or_none()) is None:
            # The write is ours all the same if it was repeated because the connection broke before the answer.
            stored = self.get(table, key)
            if stored is None or stored.revision != revision:
                raise StateConflictError(table.name, key)
        return revision

    def get_many(self, table: StateTable, keys: Sequence[Key]) -> dict[Key, Stored]:
        for key in keys:
            table.check_key(key)
        target = self._table(table)
        by_key: dict[Key, Stored] = {}
        columns = sa.tuple_(*(target.c[column] for column in table.key))
        for some in batched(keys, KEYS_PER_STATEMENT):
            wanted = [sa.tuple_(*(sa.literal(part, ExactText) for part in key)) for key in some]
            rows = self._select(sa.select(target).where(columns.in_(wanted)))
            by_key |= {table.key_of(stored.row): stored for stored in rows}
        return by_key

    def put_many(self, table: StateTable, rows: Sequence[Row]) -> None:
        """All of them in one transaction."""
        values = [{**row, REVISION: new_revision()} for row in table.complete_all(rows)]
        target = self._table(table)
        insert = self._insert(target)
        replaced = {name: insert.excluded[name] for name in (*table.columns, REVISION)}
        statement = insert.on_conflict_do_update(index_elements=list(table.key), set_=replaced)
        if values:
            self._database.run(lambda connection: connection.execute(statement, values))

    def delete(self, table: StateTable, key: Key, *, expected: int) -> None:
        table.check_key(key)
        target = self._table(table)
        statement = sa.delete(target).where(_is(target, table, key, expected))
        if self._database.run(lambda connection: connection.execute(statement).rowcount) == 0:
            raise StateConflictError(table.name, key)

    def rows(self, table: StateTable) -> Iterator[Stored]:
        """Page by page, so that no connection or snapshot is held while the caller works."""
        target = self._table(table)
        key = [target.c[column] for column in table.key]
        first = sa.select(target).order_by(*key).limit(self._page_rows)
        page = self._select(first)
        yield from page
        while len(page) == self._page_rows:
            last = [sa.literal(part, ExactText) for part in table.key_of(page[-1].row)]
            page = self._select(first.where(sa.tuple_(*key) > sa.tuple_(*last)))
            yield from page

    def purge(self, table: StateTable, column: str, before: int) -> int:
        table.check_number(column)
        target = self._table(table)
        statement = sa.delete(target).where(target.c[column] < before)
        return self._database.run(lambda connection: connection.execute(statement).rowcount)

    def close(self) -> None:
        self._database.close()

    def _insert(self, target: sa.Table) -> postgresql.Insert | sqlite.Insert:
        return postgresql.insert(target) if self._database.dialect == "postgresql" else sqlite.insert(target)

    def _select(self, statement: sa.Select[Any], of: Mapping[str, Any] = NOTHING) -> list[Stored]:
        return self._database.run(lambda connection: [_stored(row) for row in connection.execute(statement, of)])

    def _table(self, table: StateTable) -> sa.Table:
        target = self._tables.get(table.name)
        if target is None:
            definition = target = _definition(table, self._prefix)
            self._database.run(lambda connection: create_tables(connection, [definition]))
            self._database.run(lambda connection: add_columns(connection, definition))
            self._tables[table.name] = target
        return target


def _definition(table: StateTable, prefix: str) -> sa.Table:
    key = [sa.Column(name, ExactText, primary_key=True) for name in table.key]
    values = [sa.Column(name, COLUMN_TYPES[kind]) for name, kind in table.columns.items()]
    revision = sa.Column(REVISION, sa.BigInteger, nullable=False)
    return sa.Table(prefix + table.name, sa.MetaData(), *key, *values, revision)


def _is(target: sa.Table, table: StateTable, key: Sequence[Any], revision: int | None = None) -> sa.ColumnElement[bool]:
    same = [target.c[column] == part for column, part in zip(table.key, key, strict=True)]
    return sa.and_(*same, *([] if revision is None else [target.c[REVISION] == revision]))


def _stored(selected: sa.Row[Any]) -> Stored:
    row: dict[str, Any] = dict(selected._mapping)
    revision = row.pop(REVISION)
    return Stored(row, revision)
