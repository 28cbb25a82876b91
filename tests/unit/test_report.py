"""A report says what the verdict says, adds up, and lets nothing of the data become markup."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
import typer

from leanops.emulation.flow import LEAST, drawn, graph_of
from leanops.emulation.markup import Markup, element
from leanops.emulation.page import page_of
from leanops.emulation.report import Flow, Report, flow_of, report_of
from leanops.emulation.verify import Verdict
from leanops.entrypoints.cli.verdicts import judge, summarise, tell
from tests.verdicts import HOSTILE, broken, scenario, topic, verdict


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
    assert [(one.behind, one.moved, one.quarantined, one.dead_letters) for one in made.topics] == [
        (140, 40, 200, 1)
    ] * 2


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


def test_more_in_one_topic_does_not_hide_that_another_lost_some() -> None:
    rows = topic("orders").rows
    lost = replace(topic("orders"), rows={**rows, "raw": 5_990})
    more = replace(topic("payments"), rows={**rows, "raw": 6_008})
    flow = report_of(scenario(), Verdict((lost, more))).flow
    assert (flow.missing, flow.again) == (9, 9)


@pytest.mark.parametrize(
    ("flow", "places"),
    [
        (flow_of(100, 1, 99, {"read": 99, "inserted": 99}, {"read": 99, "inserted": 99}), {}),
        (flow_of(100, 1, 90, {"read": 90, "inserted": 90}, {"read": 90, "inserted": 90}), {"missing": 9}),
        (flow_of(100, 0, 110, {"read": 110, "inserted": 110}, {"read": 110, "inserted": 110}), {"again": 10}),
        (
            flow_of(100, 0, 100, {"read": 60, "inserted": 60}, {"read": 50, "inserted": 50}),
            {"waiting": 40, "unread": 10},
        ),
    ],
)
def test_what_is_missing_or_waits_has_a_place(flow: Flow, places: dict[str, int]) -> None:
    found = {place.name: place.count for place in graph_of(flow).places}
    assert {name: found.get(name, 0) for name in ("missing", "again", "waiting", "unread")} == (
        dict.fromkeys(("missing", "again", "waiting", "unread"), 0) | places
    )


def test_what_goes_into_a_place_comes_out_of_it() -> None:
    graph = graph_of(report().flow)
    for place in graph.places:
        comes = sum(count for _, target, count in graph.links if target == place.name)
        goes = sum(count for source, _, count in graph.links if source == place.name)
        assert {comes, goes} - {0} == {place.count}, place.name


def test_bands_are_as_wide_as_their_counts_and_no_box_covers_another() -> None:
    drawing = drawn(graph_of(report().flow), (0.0, 100.0, 200.0, 300.0, 400.0), 300.0)
    wide = [band for band in drawing.bands if band.width > LEAST]
    ratios = [band.width / band.count for band in wide]
    assert len(wide) > 5
    assert max(ratios) - min(ratios) < 1e-9
    assert min(band.width for band in drawing.bands) == LEAST
    for above, below in pairwise(sorted(drawing.boxes, key=lambda box: (box.x, box.y))):
        assert above.x < below.x or above.y + above.height < below.y
    assert max(box.y + box.height for box in drawing.boxes) <= drawing.height


def test_an_emulation_with_nothing_in_it_has_a_page_too() -> None:
    assert "FAILED" not in page_of(report_of(scenario(), Verdict(())))


def test_nothing_of_the_data_becomes_markup() -> None:
    page = page_of(report(broken(HOSTILE)))
    assert HOSTILE not in page
    assert "<script" not in page
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&amp;" in page
    assert element("p", HOSTILE, Markup("<b>"), title=HOSTILE).count("<") == 3


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
    tell(scenario().steps[:2])
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["day1", "publish", "and", "land", "12,000", "2.0", "s", "6,000/s"],
        ["schema", "cycle", "over", "the", "backlog", "22,000", "10.0", "s", "2,200/s"],
    ]


def test_a_verdict_ends_with_one_line_and_the_report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    judge(tmp_path, scenario(), verdict(), 61.0)
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == f"verified, in 61 s; report: {tmp_path / 'report.html'}"
    assert "rows per period: 2026-09 700 · 2026-10 8,000" in said
    lines = [line.split() for line in said]
    assert ["topic", "orders", "payments"] in lines
    assert ["RAW", "5,999", "5,999"] in lines
    assert ["checks", "3", "of", "3", "3", "of", "3"] in lines
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_many_topics_have_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    summarise(report_of(scenario(), Verdict(tuple(topic(f"orders_{number}") for number in range(5)))))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    expected = "6,000 5,999 4,400 4,350 200 20 1 140 40 3 of 3".split()
    assert [f"orders_{number}" for number in range(5)] == [line[0] for line in lines if line[1:] == expected]


def test_a_verdict_that_failed_names_messages_and_ends_with_3(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(typer.Exit) as ended:
        judge(tmp_path, scenario(), verdict(broken()))
    assert ended.value.exit_code == 3
    said = capsys.readouterr().out
    assert "✗ payments: rows of Standardized: 4,400 expected, 4,399 found, 1 wrong" in said
    assert "    payments-day1-0000007" in said
    assert said.splitlines()[-1].startswith("FAILED, in 13 s; report: ")


def test_a_verdict_is_json_for_programs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(typer.Exit):
        judge(tmp_path, scenario(), verdict(broken()), as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert (said["verified"], said["seed"], said["published"]) == (False, 5, 12_000)
    orders, payments = said["topics"]
    assert (orders["verified"], payments["verified"]) == (True, False)
    assert payments["checks"][0]["messages"][0]["what"] == "is missing"
    assert said["report"] == str(tmp_path / "report.html")


class Balanced(HTMLParser):
    """Knows which elements are open."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "link"):
            self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag
