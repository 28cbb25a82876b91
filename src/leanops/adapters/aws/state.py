"""The state store in DynamoDB: conditional writes, consistent reads, one DynamoDB table per state table."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, Self, TypeAlias, Unpack

from botocore.exceptions import ClientError

from leanops.adapters.aws.answers import Reach, answering, code_of, connect
from leanops.domain.errors import StateConflictError, StateUnavailableError
from leanops.domain.groups import batched
from leanops.ports.state import Key, Row, StateTable, Stored, Value, new_revision

Item: TypeAlias = dict[str, dict[str, Any]]

REVISION = "revision"
# Epoch seconds for DynamoDB's own expiry, which is late: nothing reads this attribute.
TTL = "ttl"
REFUSED = "ConditionalCheckFailedException"
ATTEMPTS = 6
KEYS_PER_CALL = 100
ROWS_PER_CALL = 25


class DynamoState:
    """A StateStore on a boto3 DynamoDB client, which threads may share; tables are named prefix + name."""

    def __init__(self, client: Any, *, prefix: str = "") -> None:
        self._client, self._prefix = client, prefix

    @classmethod
    def connect(cls, *, prefix: str = "", **reach: Unpack[Reach]) -> Self:
        """A store with a client of its own."""
        reach.setdefault("attempts", ATTEMPTS)
        return cls(connect("dynamodb", **reach), prefix=prefix)

    def get(self, table: StateTable, key: Key) -> Stored | None:
        table.check_key(key)
        name = self._name(table)
        with _translated(name):
            answer = self._client.get_item(TableName=name, Key=_key(table, key), ConsistentRead=True)
        return _stored(table, answer["Item"]) if "Item" in answer else None

    def put(self, table: StateTable, row: Row, *, expected: int | None) -> int:
        item, revision, name = _item(table.complete(row)), new_revision(), self._name(table)
        item[REVISION] = _attribute(revision)
        try:
            with _translated(name):
                self._client.put_item(
                    TableName=name,
                    Item=item,
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                    **_unchanged(table, expected),
                )
        except ClientError as refusal:
            # The write is ours all the same if the client repeated it because the connection broke before the answer.
            present: Any = refusal.response
            if present.get("Item", {}).get(REVISION) != item[REVISION]:
                raise StateConflictError(table.name, table.key_of(row)) from None
        return revision

    def get_many(self, table: StateTable, keys: Sequence[Key]) -> dict[Key, Stored]:
        for key in keys:
            table.check_key(key)
        name = self._name(table)
        found: dict[Key, Stored] = {}
        for left in batched([_key(table, key) for key in dict.fromkeys(keys)], KEYS_PER_CALL):
            while left:
                asked = {name: {"Keys": left, "ConsistentRead": True}}
                with _translated(name):
                    answer = self._client.batch_get_item(RequestItems=asked)
                rows = [_stored(table, item) for item in answer["Responses"].get(name, [])]
                found |= {table.key_of(stored.row): stored for stored in rows}
                left = _fewer(answer["UnprocessedKeys"].get(name, {}).get("Keys", []), left, name)
        return found

    def put_many(self, table: StateTable, rows: Sequence[Row]) -> None:
        name, items = self._name(table), [_item(row) for row in table.complete_all(rows)]
        requests = [{"PutRequest": {"Item": {**item, REVISION: _attribute(new_revision())}}} for item in items]
        for left in batched(requests, ROWS_PER_CALL):
            while left:
                with _translated(name):
                    answer = self._client.batch_write_item(RequestItems={name: left})
                left = _fewer(answer["UnprocessedItems"].get(name, []), left, name)

    def delete(self, table: StateTable, key: Key, *, expected: int) -> None:
        table.check_key(key)
        name = self._name(table)
        try:
            with _translated(name):
                self._client.delete_item(TableName=name, Key=_key(table, key), **_unchanged(table, expected))
        except ClientError:
            raise StateConflictError(table.name, key) from None

    def rows(self, table: StateTable) -> Iterator[Stored]:
        return (_stored(table, item) for item in self._scan(table))

    def purge(self, table: StateTable, column: str, before: int) -> int:
        table.check_number(column)
        name, purged = self._name(table), 0
        old = {"ExpressionAttributeNames": {"#c": column}, "ExpressionAttributeValues": {":b": _attribute(before)}}
        for item in self._scan(table, FilterExpression="#c < :b", **old):
            try:
                with _translated(name):
                    key = {part: item[part] for part in table.key}
                    # Checked again, because the row may have been renewed since the scan read it.
                    self._client.delete_item(TableName=name, Key=key, ConditionExpression="#c < :b", **old)
                purged += 1
            except ClientError:
                continue
        return purged

    def close(self) -> None:
        self._client.close()

    def _name(self, table: StateTable) -> str:
        return self._prefix + table.name

    def _scan(self, table: StateTable, **arguments: Any) -> Iterator[Item]:
        name = self._name(table)
        pages = iter(self._client.get_paginator("scan").paginate(TableName=name, ConsistentRead=True, **arguments))
        while True:
            with _translated(name):
                page = next(pages, None)
            if page is None:
                return
            yield from page["Items"]


def _fewer(left: Sequence[Any], before: Sequence[Any], table: str) -> Sequence[Any]:
    """What a call left undone, to be asked for at once; raises if it did nothing at all, so that the caller waits."""
    if len(left) < len(before):
        return left
    raise StateUnavailableError(f"DynamoDB is too busy for table {table}; try again, or raise its limits")


def _unchanged(table: StateTable, expected: int | None) -> dict[str, Any]:
    if expected is None:
        absent = "attribute_not_exists(#k)"
        return {"ConditionExpression": absent, "ExpressionAttributeNames": {"#k": table.key[0]}}
    return {
        "ConditionExpression": "#r = :r",
        "ExpressionAttributeNames": {"#r": REVISION},
        "ExpressionAttributeValues": {":r": _attribute(expected)},
    }


def _attribute(value: str | int | bool) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"BOOL": value}
    return {"N": str(value)} if isinstance(value, int) else {"S": value}


def _value(attribute: dict[str, Any]) -> Value:
    [(kind, value)] = attribute.items()
    return int(Decimal(value)) if kind == "N" else value


def _key(table: StateTable, key: Key) -> Item:
    return {column: _attribute(part) for column, part in zip(table.key, key, strict=True)}


def _item(row: Row) -> Item:
    item = {column: _attribute(value) for column, value in row.items() if value is not None}
    expires_at = row.get("expires_at")
    if isinstance(expires_at, int):
        item[TTL] = _attribute(-(-expires_at // 1000))
    return item


def _stored(table: StateTable, item: Item) -> Stored:
    columns = (*table.key, *table.columns)
    row = {column: _value(item[column]) if column in item else None for column in columns}
    return Stored(row, int(item[REVISION]["N"]))


@contextmanager
def _translated(table: str) -> Iterator[None]:
    """Turn every failure into one line of ours, except a condition that did not hold: the caller handles that."""
    refusal: ClientError | None = None
    with answering("DynamoDB", f"table {table}", StateUnavailableError):
        try:
            yield
        except ClientError as error:
            if code_of(error) != REFUSED:
                raise
            refusal = error
    if refusal:
        raise refusal
