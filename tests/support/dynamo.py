"""The DynamoDB tables of a test; on AWS the infrastructure code creates them."""

from collections.abc import Iterable
from contextlib import suppress

import boto3

from leanops.ports.state import TABLES, StateTable


def create_tables(prefix: str, tables: Iterable[StateTable] = TABLES, endpoint: str | None = None) -> None:
    """Create the tables that do not exist yet."""
    client = boto3.client("dynamodb", endpoint_url=endpoint)
    for table in tables:
        name, kinds = prefix + table.name, ("HASH", "RANGE")
        with suppress(client.exceptions.ResourceInUseException):
            client.create_table(
                TableName=name,
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[{"AttributeName": part, "AttributeType": "S"} for part in table.key],
                KeySchema=[
                    {"AttributeName": part, "KeyType": kind} for part, kind in zip(table.key, kinds, strict=False)
                ],
            )
        client.get_waiter("table_exists").wait(TableName=name)
