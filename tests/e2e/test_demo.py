"""The demo ends in balance, and any row of its Curated table leads back to the event it came from."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LEANOPS = Path(sys.executable).parent / "leanops"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    home = tmp_path_factory.mktemp("demo") / "home"
    ran = subprocess.run(
        [LEANOPS, "demo", home, "--events", "2000"],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    return home, ran.stdout


def ask(home: Path, statement: str) -> list[dict[str, Any]]:
    ran = subprocess.run(
        [LEANOPS, "sql", "--json", statement],
        env=os.environ | {"LEANOPS_HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr == ""
    rows: list[dict[str, Any]] = json.loads(ran.stdout)
    return rows


def test_the_demo_ends_in_balance_and_says_where_to_look(demo: tuple[Path, str]) -> None:
    home, said = demo
    assert "no_schema" in said
    assert "\nbalanced, in " in said
    assert "✗" not in said
    assert f"export LEANOPS_HOME={home}" in said


def test_every_layer_has_its_table(demo: tuple[Path, str]) -> None:
    home, _ = demo
    tables = {row["table"] for row in ask(home, "show tables")}
    assert tables >= {
        "iceberg_raw_db.orders_staging",
        "iceberg_standardized_db.orders",
        "iceberg_standardized_db.parse_errors",
        "iceberg_curated_db.orders",
        "iceberg_curated_db.errors",
        "ops_db.job_run_history",
        "ops_db.drift_log",
        "ops_db.schema_versions",
        "ops_db.topic_registry",
    }


def test_a_curated_row_leads_back_to_its_event(demo: tuple[Path, str]) -> None:
    home, _ = demo
    (row,) = ask(
        home,
        "select c.order_id, c.amount, h.topic_name, h.outcome, s._batch_id as standardized_batch, r.json_payload "
        "from iceberg_curated_db.orders c "
        "join ops_db.job_run_history h on h.batch_id = c._batch_id and h.layer = 'curated' "
        "join iceberg_standardized_db.orders s on s.message_id = c.message_id "
        "join iceberg_raw_db.orders_staging r on r.message_id = c.message_id "
        "order by c.last_updated_ts desc, c.order_id, r.ingestion_ts limit 1",
    )
    event = json.loads(row["json_payload"])
    assert (row["topic_name"], row["outcome"]) == ("orders", "done")
    assert row["order_id"] == event["order"]["id"]
    assert float(row["amount"]) == event["order"]["amount"]
    runs = ask(home, f"select layer from ops_db.job_run_history where batch_id = '{row['standardized_batch']}'")
    assert runs == [{"layer": "standardized"}]


def test_personal_data_is_sealed_in_curated(demo: tuple[Path, str]) -> None:
    home, _ = demo
    (row,) = ask(home, "select email, phone from iceberg_curated_db.orders limit 1")
    assert len(row["email"]) == 64
    assert row["phone"].startswith("*")
