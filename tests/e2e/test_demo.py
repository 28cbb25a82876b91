"""The demo is verified, and any row of its Curated table leads back to the event it came from."""

import json
import os
import re
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


def test_the_demo_is_verified_and_says_where_to_look(demo: tuple[Path, str]) -> None:
    home, said = demo
    for step in ("cycle without a schema", "wrong schema files refused", "cycle with nothing new", "day4    cycle"):
        assert step in said
    assert "✗" not in said
    assert f"export LEANOPS_HOME={home}" in said
    assert re.fullmatch(rf"verified, in \d+ s; report: {home}/report.html", said.splitlines()[-1])


def test_the_report_shows_what_the_tables_hold(demo: tuple[Path, str]) -> None:
    home, _ = demo
    page = (home / "report.html").read_text(encoding="utf-8")
    (rows,) = ask(home, "select count(*) as n from iceberg_curated_db.orders")
    assert ">Verified<" in page
    assert f'<td class="number">{rows["n"]:,}</td>' in page
    (broken,) = ask(home, "select count(*) as n from iceberg_standardized_db.parse_errors")
    (refused,) = ask(home, "select count(*) as n from iceberg_curated_db.errors")
    assert f"<dt>parse errors</dt><dd>{broken['n']:,}</dd>" in page
    assert f"<dt>quarantined</dt><dd>{refused['n']:,}</dd>" in page
    (order,) = ask(home, "select customer_id, order_id from iceberg_standardized_db.orders limit 1")
    assert order["customer_id"] not in page
    assert order["order_id"] not in page


def test_the_commands_it_names_work(demo: tuple[Path, str]) -> None:
    home, said = demo
    commands = [line.strip() for line in said.split("Look at it:")[1].splitlines() if "leanops " in line]
    assert len(commands) == 4
    for command in commands:
        ran = subprocess.run(
            ["bash", "-c", command],
            env=os.environ | {"LEANOPS_HOME": str(home), "PATH": f"{LEANOPS.parent}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, ""), command
        assert ran.stdout.strip(), command


def test_every_layer_has_its_table(demo: tuple[Path, str]) -> None:
    home, _ = demo
    tables = {row["table"] for row in ask(home, "show tables")}
    assert tables >= {
        "iceberg_raw_db.orders_staging",
        "iceberg_standardized_db.orders",
        "iceberg_standardized_db.parse_errors",
        "iceberg_curated_db.orders",
        "iceberg_curated_db.payments",
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
        "select c.order_id, c.order_amount, h.topic_name, h.outcome, s._batch_id as standardized_batch, r.json_payload "
        "from iceberg_curated_db.orders c "
        "join ops_db.job_run_history h on h.batch_id = c._batch_id and h.layer = 'curated' "
        "join iceberg_standardized_db.orders s on s.message_id = c.message_id "
        "join iceberg_raw_db.orders_staging r on r.message_id = c.message_id "
        "order by c.last_updated_ts desc, c.order_id, r.ingestion_ts limit 1",
    )
    event = json.loads(row["json_payload"])
    assert (row["topic_name"], row["outcome"]) == ("orders", "done")
    assert row["order_id"] == event["order"]["id"]
    assert float(row["order_amount"]) == event["order"]["amount"]
    runs = ask(home, f"select layer from ops_db.job_run_history where batch_id = '{row['standardized_batch']}'")
    assert runs == [{"layer": "standardized"}]


def test_personal_data_is_sealed_in_curated(demo: tuple[Path, str]) -> None:
    home, _ = demo
    (row,) = ask(home, "select customer_email, customer_phone from iceberg_curated_db.orders limit 1")
    assert len(row["customer_email"]) == 64
    assert row["customer_phone"].startswith("*")
