"""The report in a real browser: the flow picture is there, in proportion, and nothing complains or calls home."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Locator, Page

from leanops.emulation.report.numbers import report_of
from leanops.emulation.report.page import page_of
from leanops.emulation.report.picture import LEAST
from tests.support.emulation.verdicts import HOSTILE, broken, rows, scenario, verdict

WIDE, NARROW = 1_280, 390
CONTRAST = 3.0
"""What WCAG asks of shapes that mean something."""
Scheme = Literal["light", "dark"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    path.write_text(page_of(report_of(scenario(), verdict())), encoding="utf-8")
    return path


@contextmanager
def opened(browser: Browser, file: Path, width: int = WIDE, scheme: Scheme = "light") -> Iterator[Page]:
    """The page; afterwards, nothing was said in the console and nothing but the file was asked for."""
    said: list[str] = []
    asked: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    yield page
    page.close()
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [file.as_uri()]


def heights(boxes: Locator) -> dict[str, tuple[int, float]]:
    """Place → its count, and the height it is drawn with."""
    return {
        str(box.get_attribute("data-place")): (
            int(box.get_attribute("data-count") or 0),
            float((box.bounding_box() or {})["height"]),
        )
        for box in boxes.all()
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_flow_picture_is_seen_and_nothing_is_wider_than_the_window(
    browser: Browser, file: Path, tmp_path: Path, width: int, scheme: Scheme
) -> None:
    with opened(browser, file, width, scheme) as page:
        page.screenshot(path=tmp_path / f"report-{scheme}-{width}.png", full_page=True)
        pictures = [svg for svg in page.locator(".flow svg").all() if svg.is_visible()]
        assert len(pictures) == (1 if width == WIDE else 2)
        for picture in pictures:
            box = picture.bounding_box()
            assert box is not None
            assert box["width"] > width / 2
            assert box["height"] > 150
        inner = page.evaluate("document.documentElement.scrollWidth")
        assert inner == width
        overhang = page.evaluate(
            "[...document.querySelectorAll('svg text')].filter(text => text.getClientRects().length)"
            ".map(text => text.getBoundingClientRect()).filter(box => box.left < 0 || box.right > innerWidth).length"
        )
        assert overhang == 0


def test_the_picture_is_in_proportion(browser: Browser, file: Path) -> None:
    with opened(browser, file) as page:
        drawn = heights(page.locator(".flow.wide rect"))
        assert drawn["published"][0] == 12_000
        scale = drawn["published"][1] / 12_000
        for place in ("raw", "new", "newer", "old", "copy", "kept", "first", "replaced", "behind"):
            count, height = drawn[place]
            assert height == pytest.approx(count * scale, abs=2 * LEAST), place
        assert drawn["dead"][1] >= LEAST / 2
        assert bands(page) > 8


def bands(page: Page) -> int:
    """How many bands are as wide at both ends as their counts ask for."""
    found = [
        (int(path.get_attribute("data-count") or 0), [float(one) for one in numbers(path)])
        for path in page.locator(".flow.wide path").all()
    ]
    scale = max(ends[-1] - ends[1] for _, ends in found) / max(count for count, _ in found)
    for count, ends in found:
        right, left = ends[8] - ends[7], ends[-1] - ends[1]
        assert left == pytest.approx(right, abs=0.05)
        assert left == pytest.approx(max(LEAST, count * scale), abs=0.05)
    return len(found)


def numbers(path: Locator) -> list[str]:
    return re.findall(r"[\d.]+", path.get_attribute("d") or "")


def test_places_are_labelled_with_their_counts(browser: Browser, file: Path) -> None:
    with opened(browser, file) as page:
        texts = page.locator(".flow.wide text").all_text_contents()
        labels = list(pairwise(texts))
        for pair in (("published", "12,000"), ("superseded", "1,358"), ("quarantined, behind", "300")):
            assert pair in labels
        assert "not a JSON object within the limits" in (
            page.locator("[data-place=broken] title").first.text_content() or ""
        )


def covered(page: Page) -> int:
    """How many pairs of labels lie on each other."""
    found: int = page.evaluate(
        """[...document.querySelectorAll('.flow svg')].flatMap(svg => {
            const boxes = [...svg.querySelectorAll('.label, .count')].map(text => text.getBoundingClientRect());
            return boxes.flatMap((a, at) => boxes.slice(at + 1).filter(b => a.width && b.width &&
                a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom));
        }).length"""
    )
    return found


def test_labels_do_not_cover_each_other(browser: Browser, file: Path) -> None:
    for width in (WIDE, NARROW):
        with opened(browser, file, width) as page:
            assert covered(page) == 0


def test_dark_is_dark_and_text_is_read_on_both(browser: Browser, file: Path) -> None:
    for scheme, is_dark in (("light", False), ("dark", True)):
        with opened(browser, file, scheme=scheme) as page:  # type: ignore[arg-type]
            paper = brightness(page, "section", "backgroundColor")
            ink = brightness(page, "h2", "color")
            assert (paper < ink) == is_dark
            assert abs(paper - ink) > 150


def brightness(page: Page, selector: str, style: str) -> float:
    said = page.evaluate(f"getComputedStyle(document.querySelector('{selector}')).{style}")
    return sum(map(int, re.findall(r"\d+", said)[:3])) / 3


def test_a_report_that_failed_shows_the_messages_as_text(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "failed.html"
    file.write_text(page_of(report_of(scenario(), verdict(broken(HOSTILE)))), encoding="utf-8")
    with opened(browser, file, NARROW) as page:
        assert page.locator("h1").inner_text() == "FAILED"
        assert HOSTILE in page.locator(".wrong").inner_text()
        assert page.locator("details[open]").count() == 1
        assert page.evaluate("document.documentElement.scrollWidth") == NARROW


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_tone_stands_out_from_the_paper(browser: Browser, file: Path, scheme: Scheme) -> None:
    with opened(browser, file, scheme=scheme) as page:
        paper = luminance(page, "section", "backgroundColor")
        for tone in ("plain", "good", "quiet", "bad"):
            darker, lighter = sorted((paper, luminance(page, f".box.{tone}", "fill")))
            assert (lighter + 0.05) / (darker + 0.05) >= CONTRAST, tone


def luminance(page: Page, selector: str, style: str) -> float:
    """How light a color is, as WCAG counts it."""
    said = page.evaluate(f"getComputedStyle(document.querySelector('{selector}')).{style}")
    parts = [int(part) / 255 for part in re.findall(r"\d+", said)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_what_cannot_be_right_is_seen_and_labels_keep_apart(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "odd.html"
    odd = rows(published=6_002, raw=5_999, missing=4, again=1, unknown=1, waiting=3)
    file.write_text(page_of(report_of(scenario(), verdict(rows=odd))), encoding="utf-8")
    for width in (WIDE, NARROW):
        with opened(browser, file, width) as page:
            page.screenshot(path=tmp_path / f"odd-{width}.png", full_page=True)
            picture = ".flow.wide" if width == WIDE else ".flow.narrow"
            for place in ("missing", "unknown", "not_in_raw"):
                assert page.locator(f"{picture} .box.bad[data-place={place}]").is_visible(), place
            assert page.locator(f"{picture} .band.bad title", has_text="not in RAW →").count() == 1
            assert covered(page) == 0
            assert page.evaluate("document.documentElement.scrollWidth") == width


def test_on_a_narrow_screen_bars_are_below_each_other(browser: Browser, file: Path) -> None:
    with opened(browser, file, NARROW) as page:
        lefts = {round((bar.bounding_box() or {})["x"]) for bar in page.locator(".columns .bar").all()}
        assert len(lefts) == 1
