"""`leanops bridge` says in one line what keeps it from starting."""

from pathlib import Path

import pytest

from leanops.domain.errors import UsageError
from leanops.runtimes.bridge import at_home, subscriptions_of
from leanops.runtimes.embedded import Embedded
from tests.unit.conftest import Leanops


@pytest.fixture(autouse=True)
def no_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    """No account, and no look for one on the network."""
    for name in ("GOOGLE_CLOUD_PROJECT", "GOOGLE_APPLICATION_CREDENTIALS", "PUBSUB_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", "/nonexistent")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "no Google project"),
        (["--project", "p"], 2, "no subscriptions"),
        (["--project", "p", "--shard", "8/8"], 2, "does not exist"),
        (["--project", "p", "--subscription", "orders"], 2, "leanops topics add orders"),
        (["--project", "p", "--subscription", "a/b=orders"], 2, "is not a subscription id"),
    ],
)
def test_what_is_missing_is_said_in_one_line(leanops: Leanops, words: list[str], code: int, said: str) -> None:
    ran = leanops("bridge", *words)

    assert ran.code == code
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.usefixtures("home")
def test_missing_credentials_are_said_in_one_line(leanops: Leanops) -> None:
    leanops("topics", "add", "orders")

    ran = leanops("bridge", "--project", "p", "--port", "0")

    assert ran.code == 1
    assert "no Google credentials" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_the_subscriptions_of_all_topics_are_named_by_a_setting(
    leanops: Leanops, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leanops("topics", "add", "orders", "payments")
    monkeypatch.setenv("LEANOPS_BRIDGE_SUBSCRIPTION", "lean.{topic}-sub")
    runtime = Embedded(home)

    found = subscriptions_of(at_home(runtime), "p", [])

    runtime.close()
    assert found == {
        "projects/p/subscriptions/lean.orders-sub": "orders",
        "projects/p/subscriptions/lean.payments-sub": "payments",
    }


def test_named_subscriptions_carry_their_topics(leanops: Leanops, home: Path) -> None:
    leanops("topics", "add", "orders", "payments")
    runtime = Embedded(home)

    found = subscriptions_of(at_home(runtime), "p", ["orders", "from-shop=payments"])

    runtime.close()
    assert found == {"projects/p/subscriptions/orders": "orders", "projects/p/subscriptions/from-shop": "payments"}


@pytest.mark.parametrize("pattern", ["orders", "{topic}/x", "{topic} "])
def test_a_setting_that_names_no_subscription_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    monkeypatch.setenv("LEANOPS_BRIDGE_SUBSCRIPTION", pattern)

    with pytest.raises(UsageError, match=r"\[bridge\] subscription"):
        Embedded(home)
