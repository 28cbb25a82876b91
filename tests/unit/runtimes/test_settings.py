"""Settings: defaults, the file, variables above it, and one line for whatever is wrong."""

import os
from pathlib import Path

import pytest

from leanops.domain.errors import UsageError
from leanops.settings import FILE, Settings, load_settings


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("LEANOPS_")]:
        monkeypatch.delenv(name)


def home(folder: Path, text: str | bytes) -> Path:
    content = text if isinstance(text, bytes) else text.encode()
    (folder / FILE).write_bytes(content)
    return folder


def refusal(folder: Path, text: str | bytes = "") -> str:
    with pytest.raises(UsageError) as refused:
        load_settings(home(folder, text))
    assert len(str(refused.value).splitlines()) == 1
    return str(refused.value)


def test_without_a_file_everything_has_its_default(tmp_path: Path) -> None:
    for place in (None, tmp_path, home(tmp_path, "# nothing\n")):
        settings = load_settings(place)
        assert settings == Settings()
        assert (settings.payload_bytes, settings.payload_depth, settings.payload_keys) == (1_000_000, 64, 5_000)
        assert (settings.table_columns, settings.new_columns) == (1_000, 200)
        assert (settings.lease_s, settings.removed_after_batches, settings.explore) == (300, 10, False)
        assert settings.duplicate_keys == "last_wins"


def test_every_setting_says_what_it_is() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_the_file_changes_what_it_names(tmp_path: Path) -> None:
    settings = load_settings(home(tmp_path, 'workers = 2\nexplore = true\nraw_database = "größe"\n'))
    assert (settings.workers, settings.explore, settings.raw_database, settings.tries) == (2, True, "größe", 5)


def test_a_variable_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEANOPS_WORKERS", "7")
    monkeypatch.setenv("LEANOPS_EXPLORE", "true")
    settings = load_settings(home(tmp_path, "workers = 2\n"))
    assert (settings.workers, settings.explore) == (7, True)


def test_variables_that_are_no_settings_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEANOPS_HOME", "LEANOPS_CACHE", "LEANOPS_PII_KEY", "OTHER_WORKERS"):
        monkeypatch.setenv(name, "x")
    assert load_settings(tmp_path) == Settings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("worker = 2\n", "unknown setting 'worker' in leanops.toml; did you mean 'workers'?"),
        ("payload_size = 2\n", "unknown setting 'payload_size' in leanops.toml; did you mean"),
        ("zzz = 2\n", "unknown setting 'zzz' in leanops.toml"),
        ("[limits]\nworkers = 2\n", "unknown setting 'limits' in leanops.toml"),
        ('"new\\nline" = 1\n', "unknown setting 'new\\nline' in leanops.toml"),
    ],
)
def test_an_unknown_setting_is_named_with_the_one_it_resembles(tmp_path: Path, text: str, said: str) -> None:
    assert refusal(tmp_path, text).startswith(said)


def test_an_unknown_variable_is_named_with_the_one_it_resembles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEANOPS_WORKRES", "2")
    assert refusal(tmp_path) == "unknown setting 'workres' in the environment; did you mean 'workers'?"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("workers = 0\n", "workers"),
        ('workers = "many"\n', "workers"),
        ("workers = 1.5\n", "workers"),
        ("workers = [1]\n", "workers"),
        ("payload_depth = 501\n", "payload_depth"),
        ('duplicate_keys = "first"\n', "duplicate_keys"),
        ('explore = "perhaps"\n', "explore"),
        ("raw_database = 5\n", "raw_database"),
        ("lease_s = 2\n", "lease_s"),
    ],
)
def test_a_bad_value_names_its_setting(tmp_path: Path, text: str, name: str) -> None:
    assert refusal(tmp_path, text).startswith(f"setting {name}: ")


def test_a_bad_value_of_a_variable_names_its_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEANOPS_WORKERS", "many")
    assert refusal(tmp_path).startswith("setting workers: ")


@pytest.mark.parametrize("text", ["workers 2\n", "= 2\n", 'a = "\n', "workers = 1\nworkers = 2\n", b"\xff\xfe", "[a\n"])
def test_a_file_that_is_no_toml_says_so(tmp_path: Path, text: str | bytes) -> None:
    assert refusal(tmp_path, text).startswith("leanops.toml is no TOML: ")
