"""A report as one self-contained HTML page."""

from collections import Counter

from jinja2 import Environment, PackageLoader, StrictUndefined

from leanops.emulation.report.numbers import COLUMNS, Report
from leanops.emulation.report.picture import BOX, pictures_of

# Autoescape whatever the name of the file: no data may become markup.
_templates = Environment(
    loader=PackageLoader("leanops.emulation.report", "."),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_templates.filters["grouped"] = "{:,}".format
_templates.filters["px"] = lambda length: f"{length:.2f}".rstrip("0").rstrip(".")


def page_of(report: Report) -> str:
    """The whole page."""
    wide, *narrow = pictures_of(report.flow)
    return _templates.get_template("page.html.j2").render(
        report=report,
        checks=[check for _, check in report.every_check()],
        columns=COLUMNS,
        rules=_rules(report),
        pictures={"wide": [wide], "narrow": narrow},
        box=BOX,
    )


def _rules(report: Report) -> list[tuple[str, int, list[str]]]:
    """Every rule with the rows it refused, the most first, and the same for its columns."""
    columns: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    for name, count in report.rules.items():
        rule, _, column = name.partition(" ")
        counts[rule] += count
        columns.setdefault(rule, []).extend([f"{column} {count:,}"] if column else [])
    return [(rule, count, columns[rule]) for rule, count in counts.most_common()]
