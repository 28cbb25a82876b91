"""The state store in DynamoDB: conditional writes, consistent reads, one DynamoDB table per state table."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, TypeAlias

from leanops.adapters.aws.answers import answering, pages
from leanops.domain.errors import StateConflictError, StateUnavailableError
from leanops.domain.groups import batched
from leanops.ports.state import Key, Row, StateTable, Stored, Value, new_revision

Item: TypeAlias = dict[str, dict[str, Any]]

REVISION = "revision"
# Epoch seconds for DynamoDB's own expiry, which is late: nothing reads this attribute.
TTL = "ttl"
KEYS_PER_CALL = 100
ROWS_PER_CALL = 25


class DynamoState:
    """A StateStore on a boto3 DynamoDB client, which threads may share; tables are named prefix + name."""

    def __init__(self, client: Any, *, prefix: str = "") -> None:
        self._client, self._prefix = client, prefix
        self._conflict = client.exceptions.ConditionalCheckFailedException

    def get(self, table: StateTable, key: Key) -> Stored | None:
        table.check_key(key)
        with self._about(table):
            answer = self._client.get_item(TableName=self._name(table), Key=_key(table, key), ConsistentRead=True)
        return _stored(table, answer["Item"]) if "Item" in answer else None

    def put(self, table: StateTable, row: Row, *, expected: int | None) -> int:
        item, revision = _item(table.complete(row)), new_revision()
        item[REVISION] = _attribute(revision)
        condition = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD", **_unchanged(table, expected)}
        with self._about(table):
            try:
                self._client.put_item(TableName=self._name(table), Item=item, **condition)
            except self._conflict as refusal:
                # The write is ours all the same if the client repeated it because the answer was lost.
                if refusal.response.get("Item", {}).get(REVISION) != item[REVISION]:
                    raise StateConflictError(table.name, table.key_of(row)) from None
        return revision

    def get_many(self, table: StateTable, keys: Sequence[Key]) -> dict[Key, Stored]:
        for key in keys:
            table.check_key(key)
        name = self._name(table)
        by_key: dict[Key, Stored] = {}
        for left in batched([_key(table, key) for key in dict.fromkeys(keys)], KEYS_PER_CALL):
            while left:
                asked = {name: {"Keys": left, "ConsistentRead": True}}
                with self._about(table):
                    answer = self._client.batch_get_item(RequestItems=asked)
                rows = [_stored(table, item) for item in answer["Responses"].get(name, [])]
                by_key |= {table.key_of(stored.row): stored for stored in rows}
                left = _fewer(answer["UnprocessedKeys"].get(name, {}).get("Keys", []), left, name)
        return by_key

    def put_many(self, table: StateTable, rows: Sequence[Row]) -> None:
        name, items = self._name(table), [_item(row) for row in table.complete_all(rows)]
        requests = [{"PutRequest": {"Item": {**item, REVISION: _attribute(new_revision())}}} for item in items]
        for left in batched(requests, ROWS_PER_CALL):
            while left:
                with self._about(table):
                    answer = self._client.batch_write_item(RequestItems={name: left})
                left = _fewer(answer["UnprocessedItems"].get(name, []), left, name)

    def delete(self, table: StateTable, key: Key, *, expected: int) -> None:
        table.check_key(key)
        with self._about(table):
            try:
                condition = _unchanged(table, expected)
                self._client.delete_item(TableName=self._name(table), Key=_key(table, key), **condition)
            except self._conflict:
                raise StateConflictError(table.name, key) from None

    def rows(self, table: StateTable) -> Iterator[Stored]:
        return (_stored(table, item) for item in self._scan(table))

    def purge(self, table: StateTable, column: str, before: int) -> int:
        table.check_number(column)
        name, purged = self._name(table), 0
        old = {"ExpressionAttributeNames": {"#c": column}, "ExpressionAttributeValues": {":b": _attribute(before)}}
        for item in self._scan(table, FilterExpression="#c < :b", **old):
            key = {part: item[part] for part in table.key}
            # Checked again, because the row may have been renewed since the scan read it.
            with self._about(table), suppress(self._conflict):
                self._client.delete_item(TableName=name, Key=key, ConditionExpression="#c < :b", **old)
                purged += 1
        return purged

    def _name(self, table: StateTable) -> str:
        return self._prefix + table.name

    def _scan(self, table: StateTable, **arguments: Any) -> Iterator[Item]:
        target = {"TableName": self._name(table), "ConsistentRead": True}
        for page in pages(self._client, "scan", self._about(table), **target, **arguments):
            yield from page["Items"]

    def _about(self, table: StateTable) -> Any:
        return answering("DynamoDB", f"table {self._name(table)}", StateUnavailableError)


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
