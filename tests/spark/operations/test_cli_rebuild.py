"""One walk over the command line: deployed, rebuilt, rolled back, resumed; every command prints what happened."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leanops.runtimes.embedded import create_home
from tests.support.builders import column, schema_text
from tests.support.places import ROOT
from tests.support.sparkling import SETTINGS
from tests.unit.conftest import Leanops, Ran

KEYS = {"idempotency_key": "$.id"}


@pytest.fixture
def leanops(tmp_path: Path) -> Iterator[Leanops]:
    """Commands on a home of its own, in a process of their own: its Spark is not the one the other tests share."""
    home = create_home(tmp_path / "home")
    (home / "leanops.toml").write_text(SETTINGS)
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-m", "tests.spark.operations.command_worker"],
            cwd=ROOT,
            env=os.environ | {"LEANOPS_HOME": str(home), "LEANOPS_SPARK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as worker,
    ):
        words_in, ended_out = worker.stdin, worker.stdout
        assert words_in is not None
        assert ended_out is not None

        def command(*words: str, code: int = 0) -> Ran:
            words_in.write(json.dumps(words) + "\n")
            words_in.flush()
            ran = Ran(*json.loads(ended_out.readline() or '[-1, "", "the worker died"]'))
            assert ran.code == code, (words, ran)
            return ran

        yield command


def publish(leanops: Leanops, folder: Path, *payloads: dict[str, str]) -> None:
    file = folder / "events.jsonl"
    file.write_text("".join(f"{json.dumps(payload)}\n" for payload in payloads))
    leanops("publish", "orders", str(file), "--wait")


def rows(leanops: Leanops) -> dict[str, tuple[object, int]]:
    found = leanops("sql", "--json", "select idempotency_key, a, _schema_version from iceberg_curated_db.orders").json
    return {row["idempotency_key"]: (row["a"], row["_schema_version"]) for row in found}


@pytest.mark.slow
def test_a_topic_is_rebuilt_rolled_back_and_caught_up_by_commands(leanops: Leanops, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(schema_text(column("a", rules={"max_length": 1}), keys=KEYS))
    leanops("topics", "add", "orders")
    publish(leanops, tmp_path, {"id": "k1", "a": "1"}, {"id": "k2", "a": "22"})
    leanops("schema", "deploy", "orders", str(schema), "--yes")
    assert leanops("cycle", "--json").json["curated"]["errors"] == 1
    first = leanops("topics", "show", "orders", "--json").json["snapshots"][0]["snapshot"]

    schema.write_text(schema_text(column("a", type="INT"), keys=KEYS))
    deployed = leanops("schema", "deploy", "orders", str(schema), "--yes", "--rebuild")
    assert "schema version 2 is active; Curated was rebuilt" in deployed.out
    assert rows(leanops) == {"k1": (1, 2), "k2": (22, 2)}
    assert leanops("errors", "list").out == "0 errors; 1 resolved or superseded, shown with --status all\n"
    (error,) = leanops("errors", "list", "--status", "resolved", "--json").json
    assert (error["record_key"], error["status"], error["stored_status"]) == ("key:k2", "RESOLVED", "OPEN")

    publish(leanops, tmp_path, {"id": "k3", "a": "3"})
    assert leanops("cycle", "--json").json["outcome"] == "done"
    rebuilt = leanops("rebuild", "orders", "--yes")
    assert rebuilt.out.startswith(
        "orders: Curated rebuilt, 3 rows before and 3 after, every key at the same version in "
    )
    kinds = [one["kind"] for one in leanops("topics", "show", "orders", "--json").json["snapshots"]]
    assert kinds == ["rebuild", "batch", "batch"]

    dry = leanops("rollback", "orders", "--to", str(first), code=2)
    assert dry.err.splitlines() == [
        f"  Standardized goes back to snapshot {first}: 2 rows instead of 3",
        "  Curated is rebuilt from it",
        "  undone: a rebuild and all batches since; RAW rows to read again once the topic is resumed: 1",
        "error: a rollback changes the tables; confirm with --yes",
    ]
    held = leanops("rollback", "orders", "--to", str(first), "--yes", code=1)
    assert "1 key of iceberg_curated_db.orders would be missing" in held.err
    leanops("rebuild", "orders", "--cancel")
    assert set(rows(leanops)) == {"k1", "k2", "k3"}
    done = leanops("rollback", "orders", "--to", str(first), "--accept-missing", "1", "--yes")
    assert done.out.startswith(
        f"orders: rolled back to snapshot {first}, 2 rows in Standardized\nthe topic stays paused"
    )
    assert rows(leanops) == {"k1": (1, 2), "k2": (22, 2)}
    assert leanops("cycle", "--json").json["outcome"] == "paused"

    leanops("topics", "resume", "orders")
    caught_up = leanops("cycle", "--json").json
    assert (caught_up["outcome"], caught_up["standardized"]["inserted"]) == ("done", 1)
    assert set(rows(leanops)) == {"k1", "k2", "k3"}
    status = leanops("status", "--json").json
    assert (status["balanced"], status["topics"][0]["lag_rows"]) == (True, 0)
    assert status["topics"][0]["open_errors"] == {"parse_errors": 0, "errors": 0}


@pytest.mark.slow
def test_yes_lets_no_row_leave_curated(leanops: Leanops, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(schema_text(column("a"), keys=KEYS))
    leanops("topics", "add", "orders")
    publish(leanops, tmp_path, {"id": "k1", "a": "1"}, {"id": "k2", "a": "22"}, {"id": "k3", "a": "x"})
    leanops("schema", "deploy", "orders", str(schema), "--yes")
    leanops("cycle")

    for change, option in (({"rules": {"max_length": 1}}, "--recurate"), ({"type": "INT"}, "--rebuild")):
        schema.write_text(schema_text(column("a", **change), keys=KEYS))
        refused = leanops("schema", "deploy", "orders", str(schema), "--yes", option, code=2)
        assert refused.err.splitlines()[-1] == "error: 1 key would leave Curated; allow it with --accept-missing 1"
        assert "1 row would leave Curated if old rows were re-curated" in " ".join(refused.err.split())
        assert (len(rows(leanops)), leanops("cycle", "--json").json["outcome"]) == (3, "no_new_data")
    deployed = leanops("schema", "deploy", "orders", str(schema), "--yes", "--rebuild", "--accept-missing", "1")
    assert "schema version 2 is active; Curated was rebuilt" in deployed.out
    assert rows(leanops) == {"k1": (1, 2), "k2": (22, 2)}
    again = leanops("schema", "deploy", "orders", str(schema), "--yes", "--recurate")
    assert "schema version 2 is already active; Curated was rebuilt" in again.out
