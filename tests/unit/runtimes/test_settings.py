"""Settings: sections with defaults, the file, variables above it, old names, and one line for whatever is wrong."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from leanops.domain.errors import UsageError
from leanops.runtimes.embedded import create_home
from leanops.settings import FILE, OUTSIDE, SETTINGS, Settings, load_settings, warn_once

OLD = {
    "raw_database": "databases_raw",
    "standardized_database": "databases_standardized",
    "curated_database": "databases_curated",
    "shadow_database": "databases_shadow",
    "ops_database": "databases_ops",
    "driver_memory": "spark_driver_memory",
    "java_options": "spark_java_options",
    "workers": "pipeline_workers",
    "rebuild_rows": "operations_rebuild_rows",
    "explore": "pipeline_explore",
    "payload_bytes": "limits_payload_bytes",
    "payload_depth": "limits_depth",
    "payload_keys": "limits_keys",
    "duplicate_keys": "limits_duplicate_keys",
    "table_columns": "tables_columns",
    "new_columns": "tables_new_columns",
    "warning_share": "pipeline_warning_share",
    "removed_after_batches": "pipeline_removed_after_batches",
    "tries": "pipeline_tries",
    "backoff_s": "pipeline_backoff_s",
    "lease_s": "pipeline_lease_s",
    "operation_wait_s": "operations_wait_s",
    "cycle_s": "pipeline_cycle_s",
    "delivery_mb": "delivery_flush_mb",
    "delivery_s": "delivery_flush_s",
    "min_free_mb": "ingest_min_free_mb",
    "events_per_message": "bridge_events_per_message",
    "idempotency_hours": "ingest_idempotency_hours",
}
"""Every name that changed when sections came; of the others only the place in the file did."""
OTHER = {
    "explore": "true",
    "duplicate_keys": "error",
    "warning_share": "0.5",
    "breaker_error_rate": "0.25",
    "bridge_subscription": "to-{topic}",
    "spark_master": "local[3]",
}
"""Values other than the default for settings that are neither numbers nor plain names."""


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.upper().startswith("LEANOPS_")]:
        monkeypatch.delenv(name)
    warn_once.cache_clear()
    yield
    warn_once.cache_clear()


def home(folder: Path, text: str | bytes) -> Path:
    content = text if isinstance(text, bytes) else text.encode()
    (folder / FILE).write_bytes(content)
    return folder


def refusal(folder: Path, text: str | bytes = "") -> str:
    with pytest.raises(UsageError) as refused:
        load_settings(home(folder, text))
    assert len(str(refused.value).splitlines()) == 1
    return str(refused.value)


def other_value(name: str, new: str) -> str:
    """A value that is not the default, as a variable has it."""
    default = SETTINGS[new].value_in(Settings())
    return OTHER.get(name) or (str(default + 1) if isinstance(default, int) else f"{default}x")


def test_without_a_file_everything_has_its_default(tmp_path: Path) -> None:
    for place in (None, tmp_path, home(tmp_path, "# nothing\n[pipeline]\n")):
        settings = load_settings(place)
        assert settings == Settings()
        assert (settings.limits.payload_bytes, settings.limits.depth, settings.limits.keys) == (1_000_000, 64, 5_000)
        assert (settings.tables.columns, settings.tables.new_columns) == (1_000, 200)
        assert (settings.pipeline.lease_s, settings.bridge.lease_s, settings.operations.wait_s) == (300, 60, 120)
        assert (settings.bridge.bytes, settings.pipeline.explore) == (64_000_000, False)


def test_every_setting_says_what_it_is_and_takes_its_own_default() -> None:
    assert [setting for setting in SETTINGS.values() if not setting.meaning.endswith(".")] == []
    names = {setting.variable for setting in SETTINGS.values()}
    assert len(names) == len(SETTINGS) == 50
    assert names & OUTSIDE == set()


def test_the_file_changes_what_it_names(tmp_path: Path) -> None:
    text = '[pipeline]\nworkers = 2\nexplore = true\n\n[databases]\nraw = "größe"\n\n[bridge]\nlease_s = 20\n'
    settings, default = load_settings(home(tmp_path, text)), Settings()
    assert settings == replace(
        default,
        pipeline=replace(default.pipeline, workers=2, explore=True),
        databases=replace(default.databases, raw="größe"),
        bridge=replace(default.bridge, lease_s=20),
    )
    assert load_settings(home(tmp_path, "pipeline.workers = 3\n")).pipeline.workers == 3


def test_a_variable_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEANOPS_PIPELINE_WORKERS", "7")
    monkeypatch.setenv("LEANOPS_PIPELINE_EXPLORE", "yes")
    monkeypatch.setenv("LEANOPS_Bridge_Lease_S", "30")
    settings = load_settings(home(tmp_path, "[pipeline]\nworkers = 2\ntries = 2\n[bridge]\nlease_s = 20\n"))
    assert (settings.pipeline.workers, settings.pipeline.explore, settings.pipeline.tries) == (7, True, 2)
    assert settings.bridge.lease_s == 30


def test_variables_that_are_no_settings_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*OUTSIDE, "OTHER_WORKERS"):
        monkeypatch.setenv(name, "x")
    assert load_settings(tmp_path) == Settings()


@pytest.mark.parametrize(("old", "new"), OLD.items())
def test_a_variable_with_its_old_name_works_and_says_the_new_one_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    value = other_value(old, new)
    monkeypatch.setenv(f"LEANOPS_{new.upper()}", value)
    expected = load_settings(None)
    assert (expected != Settings(), capsys.readouterr().err) == (True, "")
    monkeypatch.delenv(f"LEANOPS_{new.upper()}")
    monkeypatch.setenv(f"LEANOPS_{old.upper()}", value)
    assert [load_settings(None), load_settings(None)] == [expected, expected]
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"warning: LEANOPS_{old.upper()} is now LEANOPS_{new.upper()}; the next version no longer reads the old name\n"
    )


@pytest.mark.parametrize(
    ("old", "new"), [*OLD.items(), *((name, name) for name in sorted(SETTINGS.keys() - OLD.values()))]
)
def test_a_name_outside_of_its_section_works_and_says_where_it_belongs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    value = other_value(old, new)
    load_settings(home(tmp_path, f'{old} = "{value}"\n'))
    settings = load_settings(tmp_path)
    monkeypatch.setenv(SETTINGS[new].variable, value)
    assert settings == load_settings(None) != Settings()
    assert capsys.readouterr().err == (
        f"warning: {old} in leanops.toml is now {SETTINGS[new]}; the next version no longer reads the old name\n"
    )


def test_a_new_name_wins_over_an_old_one_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("workers = 2\n[pipeline]\nworkers = 3\n", "pipeline.workers = 3\nworkers = 2\n"):
        assert load_settings(home(tmp_path, text)).pipeline.workers == 3
    monkeypatch.setenv("LEANOPS_WORKERS", "4")
    assert load_settings(tmp_path).pipeline.workers == 4
    monkeypatch.setenv("LEANOPS_PIPELINE_WORKERS", "5")
    assert load_settings(tmp_path).pipeline.workers == 5


def test_a_fresh_home_warns_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = load_settings(create_home(tmp_path / "home"))
    assert (settings.delivery.flush_s, settings.pipeline.cycle_s) == (5, 30)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[pipeline]\nworker = 2\n", "'worker' in [pipeline] of leanops.toml; did you mean [pipeline] workers?"),
        ("[pipelines]\nworkers = 2\n", "'workers' in [pipelines] of leanops.toml; did you mean [pipeline] workers?"),
        (
            "[pipeline]\ndelivery_s = 2\n",
            "'delivery_s' in [pipeline] of leanops.toml; did you mean [delivery] flush_s?",
        ),
        ("[pipeline]\nfound_keys = 2\n", "'found_keys' in [pipeline] of leanops.toml"),
        ("[delivery]\nmb = 2\n", "'mb' in [delivery] of leanops.toml; did you mean"),
        ("[pipeline.more]\nworkers = 2\n", "'more' in [pipeline] of leanops.toml"),
        ("worker = 2\n", "'worker' in leanops.toml; did you mean [pipeline] workers?"),
        ("payload_size = 2\n", "'payload_size' in leanops.toml; did you mean [limits] "),
        ("zzz = 2\n", "'zzz' in leanops.toml"),
        ('"new\\nline" = 1\n', "'new\\nline' in leanops.toml"),
    ],
)
def test_an_unknown_setting_is_named_with_the_one_it_resembles(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(tmp_path, text).startswith(f"unknown setting {message}")


def test_an_unknown_variable_is_named_with_the_one_it_resembles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEANOPS_WORKRES", "2")
    hint = "did you mean LEANOPS_PIPELINE_WORKERS?"
    assert refusal(tmp_path) == f"unknown setting 'workres' in the environment; {hint}"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("[pipeline]\nworkers = 0\n", "[pipeline] workers"),
        ('[pipeline]\nworkers = "many"\n', "[pipeline] workers"),
        ("[pipeline]\nworkers = 1.5\n", "[pipeline] workers"),
        ("[pipeline]\nworkers = [1]\n", "[pipeline] workers"),
        ("[pipeline.workers]\nmost = 1\n", "[pipeline] workers"),
        ("[limits]\ndepth = 501\n", "[limits] depth"),
        ('[limits]\nduplicate_keys = "first"\n', "[limits] duplicate_keys"),
        ('[pipeline]\nexplore = "perhaps"\n', "[pipeline] explore"),
        ("[databases]\nraw = 5\n", "[databases] raw"),
        ("[pipeline]\nlease_s = 2\n", "[pipeline] lease_s"),
        ("[bridge]\nlease_s = 9\n", "[bridge] lease_s"),
        ('[bridge]\nsubscription = "orders"\n', "[bridge] subscription"),
        ('[spark]\nmaster = "yarn"\n', "[spark] master"),
        ('[aws]\nqueue_prefix = "longer-than-sixteen"\n', "[aws] queue_prefix"),
        ("[delivery]\nflush_mb = 129\n", "[delivery] flush_mb"),
        ("[breaker]\nerror_rate = 0\n", "[breaker] error_rate"),
        ("workers = 0\n", "[pipeline] workers"),
    ],
)
def test_a_bad_value_names_its_setting(tmp_path: Path, text: str, name: str) -> None:
    assert refusal(tmp_path, text).startswith(f"setting {name}: ")


def test_a_bad_value_of_a_variable_names_its_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEANOPS_PIPELINE_WORKERS", "many")
    assert refusal(tmp_path).startswith("setting [pipeline] workers: ")


@pytest.mark.parametrize("text", ["workers 2\n", "= 2\n", 'a = "\n', "workers = 1\nworkers = 2\n", b"\xff\xfe", "[a\n"])
def test_a_file_that_is_no_toml_says_so(tmp_path: Path, text: str | bytes) -> None:
    assert refusal(tmp_path, text).startswith("leanops.toml is not TOML: ")
