"""The real engines of the contract suites, each started once, and a state store on each."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeAlias

import pytest

from leanops.adapters.aws.answers import connect
from leanops.adapters.aws.state import DynamoState
from leanops.adapters.sql.state import SqlState
from leanops.ports.state import StateStore
from tests.support.dynamo import create_tables
from tests.support.engines import dynamodb, elasticmq, moto, postgresql, require

OpenState: TypeAlias = Callable[[], StateStore]


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    with require(postgresql) as url:
        yield url


@pytest.fixture(scope="session")
def dynamodb_endpoint() -> Iterator[str]:
    with require(dynamodb) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def elasticmq_endpoint() -> Iterator[str]:
    with require(elasticmq) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    with require(moto) as endpoint:
        yield endpoint


@pytest.fixture(params=["sqlite", "postgresql", "dynamodb"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenState]:
    """Opens stores on one and the same empty database."""
    prefix = f"t{secrets.token_hex(6)}_"
    with ExitStack() as opened:

        def open_one() -> StateStore:
            if request.param == "dynamodb":
                endpoint = request.getfixturevalue("dynamodb_endpoint")
                create_tables(prefix, endpoint=endpoint)
                client = opened.enter_context(closing(connect("dynamodb", endpoint=endpoint)))
                return DynamoState(client, prefix=prefix)
            if request.param == "postgresql":
                store = SqlState(request.getfixturevalue("postgresql_url"), prefix=prefix, page_rows=7)
            else:
                store = SqlState(f"sqlite:///{tmp_path}/new/state.db", prefix=prefix, page_rows=7)
            opened.callback(store.close)
            return store

        yield open_one


@pytest.fixture
def store(open_store: OpenState) -> StateStore:
    return open_store()
