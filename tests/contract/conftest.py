"""The real engines of the contract suites, each started once."""

from collections.abc import Iterator

import pytest

from tests.engines import dynamodb, elasticmq, moto, postgresql, require


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
