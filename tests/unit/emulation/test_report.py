"""A report says what the verdict says, adds up, and lets nothing of the data become markup."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
import typer

from leanops.emulation.report.flow import BAD, graph_of
from leanops.emulation.report.numbers import Flow, Report, flow_of, report_of
from leanops.emulation.report.page import page_of
from leanops.emulation.report.picture import LEAST, Screen, drawn
from leanops.emulation.scenario import Scenario, Step
from leanops.emulation.verify.tables import Database
from leanops.emulation.verify.verdict import Verdict, counted
from leanops.entrypoints.cli.emulation.verdicts import judge, print_steps, summarise
from tests.support.emulation.verdicts import HOSTILE, broken, rows, scenario, topic, verdict


def report(*checks: object) -> Report:
    return report_of(scenario(), verdict(*checks))  # type: ignore[arg-type]


def test_the_topics_add_up_to_the_report() -> None:
    made = report()
    assert (made.passed, made.seed, made.flow.published, made.flow.raw, made.flow.dead) == (True, 5, 12_000, 11_998, 2)
    assert (made.flow.standardized["inserted"], made.flow.curated["errors"]) == (8_800, 400)
    assert made.periods == {"2026-09": 700, "2026-10": 8_000}
    assert made.kinds["new"] == {"curated": 8_000}
    assert made.copies == {"duplicate": 600}
    assert made.fates == ("curated", "superseded", "parse error")
    assert [one.cells()[5:] for one in made.topics] == [(200, 19, 1, 140, 40, "3 of 3")] * 2


def test_the_first_batch_is_no_drift() -> None:
    (orders, _) = report().topics
    assert (orders.first_paths, orders.added, orders.changed) == (1, (f"$.{HOSTILE}",), ("$.amount",))


def test_a_step_done_again_counts_once() -> None:
    made = report()
    assert made.seconds == 13.0
    assert [(phase.name, phase.seconds) for phase in made.phases] == [("day1", 2.0), ("schema", 10.0), ("verify", 1.0)]
    assert report_of(scenario(), verdict(), 99.0).seconds == 99.0


def test_the_slowest_steps_are_batches_and_steps_but_no_cycles() -> None:
    slowest = [(step.phase, step.what, step.seconds) for step in report().slowest]
    assert slowest[:2] == [("orders", "Standardized, batch 1", 7.0), ("payments", "Standardized, batch 1", 7.0)]
    assert not [what for _, what, _ in slowest if "cycle" in what]
    assert [seconds for *_, seconds in slowest] == sorted((seconds for *_, seconds in slowest), reverse=True)


def test_what_failed_comes_first_and_stays_failed_in_the_whole() -> None:
    made = report(broken())
    assert not made.passed
    assert made.topics[1].checks[0].name == "rows of Standardized"
    assert [name for name, _ in made.failed()] == ["payments"]
    assert [check.name for check in made.checks() if not check.passed] == ["rows of Standardized"]


def test_a_surplus_in_one_topic_does_not_hide_what_another_lacks() -> None:
    one, other = broken("keys"), replace(broken("keys"), expected=4_399, found=4_400, wrong=0)
    made = report_of(scenario(), Verdict((topic("orders", one), topic("payments", other))))
    (keys,) = [check for check in made.checks() if check.name == "keys"]
    assert (keys.expected, keys.found, keys.passed) == (8_799, 8_799, False)


def found_by(sent: Sequence[str], landed: Sequence[str], dead: Sequence[str | None] = ()) -> dict[str, int]:
    """What is counted where these messages were sent, are in RAW (`late` in no batch yet), and are dead letters."""
    with TemporaryDirectory() as folder:
        database = Database(Path(folder))
        for name in ("found_standardized", "found_curated", "found_unparsed", "found_refused"):
            database.register(name, pa.table({"message_id": pa.array([], pa.string())}))
        batches = pa.array([None if message == "late" else 1 for message in landed], pa.int32())
        database.register("ledger", pa.table({"message_id": pa.array(sent, pa.string())}))
        database.register("raw", pa.table({"message_id": pa.array(landed, pa.string()), "batch": batches}))
        database.register("found_dead", pa.table({"message_id": pa.array(dead, pa.string())}))
        found = counted(database)
        database.close()
    return found


@pytest.mark.parametrize(
    ("found", "different"),
    [
        (found_by("abb", "abb"), {}),
        (found_by("ab", "aa"), {"missing": 1, "again": 1}),
        (found_by("ab", "ax"), {"missing": 1, "unknown": 1}),
        (found_by("abb", "a", ["b", None]), {"dead": 2}),
        (found_by("ab", "ab", ["b"]), {}),
        (found_by("ab", "a", ["x", None]), {"missing": 1}),
        (found_by(["a", "late"], ["a", "late"]), {"waiting": 1}),
        (found_by("", ""), {}),
    ],
)
def test_ways_are_counted_message_by_message(found: Mapping[str, int], different: Mapping[str, int]) -> None:
    ways = {name: found[name] for name in ("missing", "again", "unknown", "dead", "waiting")}
    assert ways == dict.fromkeys(ways, 0) | different
    assert found["published"] == found["raw"] - found["again"] - found["unknown"] + found["dead"] + found["missing"]


def test_more_in_one_topic_does_not_hide_that_another_lost_some() -> None:
    lost = replace(topic("orders"), rows=rows(raw=5_990, missing=9))
    more = replace(topic("payments"), rows=rows(raw=6_008, again=9))
    flow = report_of(scenario(), Verdict((lost, more))).flow
    assert (flow.missing, flow.again, flow.uncounted, flow.not_in_raw) == (9, 9, 9, 9)


def flow(standardized: int, curated: int, raw: int = 100, **changes: int) -> Flow:
    """A topic with a hundred messages, of which some were counted."""
    read, kept = {"read": 100, "inserted": standardized}, {"read": 100, "inserted": curated}
    return flow_of(rows(published=100, dead=0, raw=raw, **changes), read, kept)


ODD = {
    "all is well": (flow(100, 100), {}),
    "lost on the way": (flow(90, 90, raw=90, missing=10), {"missing": 10}),
    "one lost, one doubled": (flow(100, 100, missing=1, again=1), {"missing": 1, "again": 1}),
    "delivered again": (flow(110, 110, raw=110, again=10), {"again": 10}),
    "from nowhere": (flow(101, 101, raw=101, unknown=1), {"unknown": 1}),
    "not all read": (flow(60, 50, waiting=40), {"waiting": 40, "unread": 10}),
    "passed by": (flow(95, 95), {"uncounted": 5}),
    "a batch twice": (flow(130, 130), {"not_in_raw": 30}),
    "curated twice": (flow(100, 150), {"not_kept": 50}),
}
"""What happened, the flow, and the places that only such a flow has."""


@pytest.mark.parametrize(("odd", "places"), ODD.values(), ids=ODD.keys())
def test_what_counts_do_not_explain_has_a_place(odd: Flow, places: dict[str, int]) -> None:
    usual = {"published", "raw", "new", "kept", "first"}
    found = {place.name: place.count for place in graph_of(odd).places}
    assert {name: count for name, count in found.items() if name not in usual} == places


@pytest.mark.parametrize("shown", [flow for flow, _ in ODD.values()] + [report().flow], ids=[*ODD, "a whole report"])
def test_what_goes_into_a_place_comes_out_of_it(shown: Flow) -> None:
    graph = graph_of(shown)
    for place in graph.places:
        comes = sum(count for _, target, count in graph.links if target == place.name)
        goes = sum(count for source, _, count in graph.links if source == place.name)
        assert {comes, goes} - {0} == {place.count}, place.name


@pytest.mark.parametrize("odd", ["lost on the way", "from nowhere", "passed by", "a batch twice", "curated twice"])
def test_what_cannot_be_right_looks_bad(odd: str) -> None:
    shown, places = ODD[odd]
    assert {place.tone for place in graph_of(shown).places if place.name in places} == {BAD}


def test_bands_are_as_wide_as_their_counts_and_no_box_covers_another() -> None:
    screen = Screen(500.0, (0.0, 100.0, 200.0, 300.0, 400.0), 300.0)
    drawing = drawn(graph_of(report().flow), screen, ("",) * 5)
    wide = [band for band in drawing.bands if band.width > LEAST]
    ratios = [band.width / band.count for band in wide]
    assert len(wide) > 5
    assert max(ratios) - min(ratios) < 1e-9
    assert min(band.width for band in drawing.bands) == LEAST
    for above, below in pairwise(sorted(drawing.boxes, key=lambda box: (box.x, box.y))):
        assert above.x < below.x or above.y + above.height < below.y
    assert max(box.y + box.height for box in drawing.boxes) <= drawing.height


@pytest.mark.parametrize("nothing", [Verdict(()), Verdict((replace(topic("orders"), checks=()),))])
def test_a_verdict_over_nothing_is_not_verified(nothing: Verdict, tmp_path: Path) -> None:
    made = report_of(scenario(), nothing)
    assert not made.passed
    assert ">FAILED<" in page_of(made)
    assert ">Verified<" in page_of(report())
    with pytest.raises(typer.Exit) as ended:
        judge(tmp_path, scenario(), nothing)
    assert ended.value.exit_code == 3


def test_a_message_that_came_twice_is_one_row_of_its_topic_and_of_the_whole(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = report()
    assert made.flow.standardized["parse_errors"] == 40
    page = page_of(made)
    assert "<dt>parse errors</dt><dd>38</dd>" in page
    assert page.count('<td class="number">19</td>') == 2
    summarise(made)
    assert ["parse", "errors", "19", "19"] in [line.split() for line in capsys.readouterr().out.splitlines()]


def test_the_picture_tells_its_numbers_to_those_who_do_not_see_it() -> None:
    labels = re.findall(r'<svg[^>]* aria-label="([^"]*)"', page_of(report()))
    assert len(labels) == 3
    assert "published to RAW 11,998, published to dead letters 2" in labels[0]
    assert "Standardized to quarantined, behind 300" in labels[0]
    for label in labels[1:]:
        assert set(label.partition(": ")[2].split(", ")) <= set(labels[0].partition(": ")[2].split(", "))


def test_nothing_of_the_data_becomes_markup() -> None:
    page = page_of(report(broken(HOSTILE)))
    assert HOSTILE not in page
    assert "<script" not in page
    assert "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;&amp;" in page


def test_a_name_is_text_wherever_it_is_shown() -> None:
    named = replace(
        topic(HOSTILE, broken(HOSTILE)),
        kinds={(HOSTILE, "curated"): 3},
        copies={HOSTILE: 2},
        periods={HOSTILE: 3},
        rules={HOSTILE: 1},
    )
    steps = [Step(HOSTILE, HOSTILE, 1.0, 10)]
    page = page_of(report_of(Scenario(steps=steps), Verdict((named,), (broken(HOSTILE),))))
    reader = Balanced()
    reader.feed(page)
    assert reader.opened == []
    assert "script" not in reader.seen
    assert page.count("&lt;script&gt;") > 20


def test_a_rule_names_its_first_columns_and_counts_the_others() -> None:
    rules = {f"rule_min column_{number}": 1_000 - number for number in range(6)}
    page = page_of(report_of(scenario(), Verdict((replace(topic("orders"), rules=rules),))))
    named = "column_0 1,000, column_1 999, column_2 998, column_3 997 and 2 more"
    assert f'<span class="name">rule_min<small>{named}</small></span>' in page


def test_the_page_names_no_other_file_or_site_and_closes_what_it_opens() -> None:
    page = page_of(report(broken()))
    assert re.findall(r"(?:src|href|url|@import)\W*[^\s>]*", page) == ['href="data:,"']
    assert "http" not in page
    reader = Balanced()
    reader.feed(page)
    assert reader.opened == []


def test_a_page_that_failed_says_so_with_the_messages() -> None:
    page = page_of(report(broken()))
    assert ">FAILED<" in page
    assert "payments-day1-0000007" in page
    assert page.index("What is wrong") < page.index("Where the events went")
    assert "What is wrong" not in page_of(report())


def test_steps_are_told_with_rows_and_rates(capsys: pytest.CaptureFixture[str]) -> None:
    print_steps(scenario().steps[:2])
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["day1", "publish", "and", "land", "12,000", "2.0", "s", "6,000/s"],
        ["schema", "cycle", "over", "the", "backlog", "22,000", "10.0", "s", "2,200/s"],
    ]


def test_a_verdict_ends_with_one_line_and_the_report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    judge(tmp_path, scenario(), verdict(), 61.0)
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == f"verified, in 61 s; report: {tmp_path / 'report.html'}"
    assert "rows per period: 2026-09 700 · 2026-10 8,000" in printed
    lines = [line.split() for line in printed]
    assert ["topic", "orders", "payments"] in lines
    assert ["RAW", "5,999", "5,999"] in lines
    assert ["checks", "3", "of", "3", "3", "of", "3"] in lines
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_many_topics_have_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    summarise(report_of(scenario(), Verdict(tuple(topic(f"orders_{number}") for number in range(5)))))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    expected = "6,000 5,999 4,400 4,350 200 19 1 140 40 3 of 3".split()
    assert [f"orders_{number}" for number in range(5)] == [line[0] for line in lines if line[1:] == expected]


def test_a_verdict_that_failed_names_messages_and_ends_with_3(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(typer.Exit) as ended:
        judge(tmp_path, scenario(), verdict(broken()))
    assert ended.value.exit_code == 3
    printed = capsys.readouterr().out
    assert "✗ payments: rows of Standardized: 4,400 expected, 4,399 found, 1 wrong" in printed
    assert "    payments-day1-0000007" in printed
    assert printed.splitlines()[-1].startswith("FAILED, in 13 s; report: ")


def test_a_verdict_is_json_for_programs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(typer.Exit):
        judge(tmp_path, scenario(), verdict(broken()), as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert (printed["verified"], printed["seed"], printed["published"]) == (False, 5, 12_000)
    orders, payments = printed["topics"]
    assert (orders["verified"], payments["verified"]) == (True, False)
    assert payments["checks"][0]["messages"][0]["what"] == "is missing"
    assert printed["report"] == str(tmp_path / "report.html")


def test_programs_get_every_number_of_the_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    judge(tmp_path, scenario(), verdict(rows=rows(raw=5_990, missing=9, waiting=3)), as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert [(phase["phase"], phase["seconds"]) for phase in printed["phases"]][:2] == [("day1", 2.0), ("schema", 10.0)]
    assert printed["phases"][0]["steps"] == [
        {"phase": "day1", "what": "publish and land", "seconds": 2.0, "rows": 12_000}
    ]
    assert (printed["slowest"][0]["what"], printed["slowest"][0]["seconds"]) == ("Standardized, batch 1", 7.0)
    assert (printed["flow"]["missing"], printed["flow"]["waiting"], printed["flow"]["again"]) == (9, 3, 0)
    assert printed["topics"][1]["flow"]["missing"] == 9
    assert (printed["flow"]["standardized"]["inserted"], printed["flow"]["curated"]["cross_period"]) == (8_800, 80)
    assert printed["topics"][0]["flow"]["curated"]["inserted"] == 4_350
    assert printed["topics"][0]["drift"]["first_paths"] == 1


class Balanced(HTMLParser):
    """Knows which elements are open, and which it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        if tag not in ("meta", "link"):
            self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag
