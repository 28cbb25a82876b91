"""A report as one HTML page that needs nothing but itself."""

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.resources import files

from leanops.emulation.report.markup import Markup, element, joined
from leanops.emulation.report.numbers import COLUMNS, Report
from leanops.emulation.report.picture import flow_picture
from leanops.emulation.scenario import Step
from leanops.emulation.verify.found import Check

_STYLE = Markup(files("leanops.emulation.report").joinpath("page.css").read_text(encoding="utf-8"))
Cell = int | str | Markup
SHOWN = 4
"""Columns of a rule that are named."""


def page_of(report: Report) -> str:
    """The whole page."""
    verdict = "verified" if report.passed else "FAILED"
    head = element(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'),
        element("title", f"Lean-Ops emulation: {verdict}, seed {report.seed}"),
        element("style", _STYLE),
    )
    body = element("body", element("main", *_sections(report), _foot()))
    return Markup("<!doctype html>\n") + element("html", head, body, lang="en") + "\n"


def _sections(report: Report) -> list[Markup]:
    return [
        _header(report),
        _failed(report),
        _section("Where the events went", _FLOW, flow_picture(report.flow)),
        element(
            "div",
            _section("Phases", "What each step took, and how many rows went through it in a second.", _phases(report)),
            _section("Errors by rule", "Rows a rule refused; a row may break several.", _rules(report)),
            class_="pair",
        ),
        _section("Topics", "Rows of every layer, and how many checks they passed.", _topics(report)),
        _section("Slowest steps", "Single batches, and the steps that are none.", _slowest(report)),
        _section("Rows per period", "Curated rows by the month they belong to.", _periods(report)),
        _section("What became of every kind of event", _KINDS, _kinds(report)),
        _section("Drift", "Paths that came after the first batch, and paths whose kind changed.", _drift(report)),
        _section("Balance and checks", _CHECKS, *_every_check(report)),
    ]


_FLOW = (
    "Every event from its queue to Curated, or to the table that says why not. Bands are as wide as their counts. "
    "What came twice is counted twice, by each batch that read it; tables have it once."
)
_KINDS = (
    "What the generator made on purpose, and where it ended. Copies are sent once more and make no row of their own."
)
_CHECKS = "The tables against the ledger of what was sent, message by message. Those that failed come first."


def _section(title: str, says: str, *content: Markup) -> Markup:
    return element("section", element("h2", title), element("p", says, class_="says"), *content)


def _header(report: Report) -> Markup:
    checks = [check.passed for topic in report.topics for check in topic.checks]
    checks += [check.passed for check in report.shared]
    tiles = [
        ("published", f"{report.flow.published:,}"),
        ("rows in Curated", f"{sum(report.periods.values()):,}"),
        ("quarantined", f"{sum(topic.rows['quarantined'] for topic in report.topics):,}"),
        ("parse errors", f"{sum(topic.rows['parse_errors'] for topic in report.topics):,}"),
        ("rows moved", f"{sum(topic.moved for topic in report.topics):,}"),
        ("checks passed", f"{sum(checks):,} of {len(checks):,}"),
    ]
    topics = f"{len(report.topics)} topic{'' if len(report.topics) == 1 else 's'}"
    return element(
        "header",
        element("p", "Lean-Ops emulation", class_="over"),
        element("h1", "Verified" if report.passed else "FAILED", class_="good" if report.passed else "bad"),
        element("p", f"{report.flow.published:,} events, {topics}, seed {report.seed}, in {report.seconds:,.0f} s"),
        element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in tiles)),
    )


def _failed(report: Report) -> Markup:
    failed = report.failed()
    if not failed:
        return Markup()
    found = [
        element("li", element("b", f"{topic}: {check.name}"), f" {_sentence(check)}", _examples(check))
        for topic, check in failed
    ]
    return element("section", element("h2", "What is wrong"), element("ul", *found), class_="wrong")


def _sentence(check: Check) -> str:
    return f"{check.expected:,} expected, {check.found:,} found, {check.wrong:,} wrong"


def _examples(check: Check) -> Markup:
    if not check.examples:
        return Markup()
    return element(
        "ul", *(element("li", element("code", wrong.message_id), f" {wrong.what}") for wrong in check.examples)
    )


def _phases(report: Report) -> Markup:
    longest = max((step.seconds for phase in report.phases for step in phase.steps), default=0.0)
    found = []
    for phase in report.phases:
        found.append(element("h3", phase.name, element("span", f"{phase.seconds:,.1f} s")))
        found += [_step(step.what, step, longest) for step in phase.steps]
    return joined(*found)


def _slowest(report: Report) -> Markup:
    longest = max((step.seconds for step in report.slowest), default=0.0)
    found = [_step(f"{step.phase}: {step.what}", step, longest) for step in report.slowest]
    return element("div", *found, class_="columns")


def _step(name: str, step: Step, longest: float) -> Markup:
    rate = f"{step.rows:,} rows, {step.rows / step.seconds:,.0f}/s" if step.rows and step.seconds else ""
    return _bar(name, f"{step.seconds:,.1f} s", step.seconds / (longest or 1), rate)


def _bar(name: str, value: str, share: float, note: str = "", tone: str = "plain") -> Markup:
    return element(
        "div",
        element("span", name, element("small", note) if note else "", class_="name"),
        element("span", value, class_="value"),
        element("i", class_=tone, style=f"width:{max(0.4, 100 * share):.1f}%"),
        class_="bar",
    )


def _topics(report: Report) -> Markup:
    rows: list[list[Cell]] = []
    for topic in report.topics:
        *cells, checks = topic.cells()
        rows.append([*cells, _mark(topic.passed == len(topic.checks), str(checks))])
    return _table(COLUMNS, rows)


def _rules(report: Report) -> Markup:
    columns: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    for said, count in report.rules.items():
        rule, _, column = said.partition(" ")
        counts[rule] += count
        columns.setdefault(rule, []).extend([f"{column} {count:,}"] if column else [])
    most = max(counts.values(), default=1)
    found = [
        _bar(rule, f"{count:,}", count / most, _listed(columns[rule]), "bad") for rule, count in counts.most_common()
    ]
    return joined(*found) if found else element("p", "None.")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _periods(report: Report) -> Markup:
    most = max(report.periods.values(), default=1)
    found = [_bar(period, f"{count:,}", count / most, tone="good") for period, count in report.periods.items()]
    return element("div", *found, class_="columns") if found else element("p", "None.")


def _kinds(report: Report) -> Markup:
    rows: list[list[Cell]] = []
    for kind, fates in report.kinds.items():
        rows.append([_words(kind), sum(fates.values()), *(_some(fates.get(fate, 0)) for fate in report.fates)])
    for kind, count in report.copies.items():
        rows.append([f"{_words(kind)} (copies)", count, *("" for _ in report.fates)])
    return _table(("kind", "messages", *report.fates), rows)


def _drift(report: Report) -> Markup:
    rows: list[list[Cell]] = [
        [topic.topic, topic.first_paths, _codes(topic.added), _codes(topic.changed)] for topic in report.topics
    ]
    return _table(("topic", "paths at first", "added later", "kind changed"), rows, "texts")


def _codes(paths: Sequence[str]) -> Markup:
    return element("div", *(element("code", path) for path in paths), class_="codes") if paths else Markup("–")


def _every_check(report: Report) -> list[Markup]:
    shared = [_checks("all topics together", report.shared)] if report.shared else []
    return [*(_checks(topic.topic, topic.checks) for topic in report.topics), *shared]


def _checks(name: str, checks: Sequence[Check]) -> Markup:
    rows: list[list[Cell]] = [
        [_mark(check.passed, check.name), check.expected, check.found, check.wrong] for check in checks
    ]
    passed = sum(check.passed for check in checks)
    failed = len(checks) - passed
    says = f"{passed} of {len(checks)} checks passed" if failed else f"all {len(checks)} checks passed"
    return element(
        "details",
        element("summary", _mark(not failed, name), element("span", says)),
        _table(("check", "expected", "found", "wrong"), rows),
        *(element("div", element("h3", check.name), _examples(check)) for check in checks if check.examples),
        **({"open": ""} if failed or len(checks) == 1 else {}),
    )


def _mark(passed: bool, text: str) -> Markup:
    sign = element("span", "✓" if passed else "✗", class_="sign good" if passed else "sign bad")
    return joined(sign, " ", text)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _some(count: int) -> Cell:
    return count or ""


def _table(names: Sequence[str], rows: Iterable[Sequence[Cell]], class_: str | None = None) -> Markup:
    head = element("tr", *(element("th", name, scope="col") for name in names))
    body = [element("tr", *map(_cell, row)) for row in rows]
    return element(
        "div", element("table", element("thead", head), element("tbody", *body), class_=class_), class_="scroll"
    )


def _cell(value: Cell) -> Markup:
    return element("td", f"{value:,}", class_="number") if isinstance(value, int) else element("td", value)


def _foot() -> Markup:
    return element("footer", "Made by leanops emulate. Message ids are names; no payload text is on this page.")
