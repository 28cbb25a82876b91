"""`leanops bridge` says in one line what keeps it from starting."""

import pytest

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
        (["--project", "p", "--subscription", "a/b=orders"], 2, "is no topic id"),
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
