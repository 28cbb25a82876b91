"""The flow picture as SVG: once for wide screens, and in two parts for narrow ones."""

from leanops.emulation.report.flow import BAD, BOX, PLAIN, Band, Box, Drawing, Graph, drawn, graph_of
from leanops.emulation.report.markup import Markup, element, joined
from leanops.emulation.report.numbers import Flow

TOP = 34.0
_WIDE = (1040.0, (0.0, 200.0, 420.0, 660.0, 860.0), 300.0)
_NARROW = (356.0, (0.0, 106.0, 218.0), 230.0)


def flow_picture(flow: Flow) -> Markup:
    """Where everything went, its bands as wide as what went through."""
    whole = graph_of(flow)
    return joined(
        element("div", _svg(whole, *_WIDE, _HEADS), class_="flow wide"),
        element(
            "div",
            _svg(whole.part(0, 2), *_NARROW, _HEADS[:3]),
            _svg(whole.part(2, 4), *_NARROW, ("", *_HEADS[3:])),
            class_="flow narrow",
        ),
    )


_HEADS = ("sent", "landed", "standardized", "", "curated")


def _svg(graph: Graph, width: float, columns: tuple[float, ...], height: float, heads: tuple[str, ...]) -> Markup:
    if not graph.links:
        return Markup()
    drawing = drawn(graph, columns, height)
    named = [
        element("text", head, x=_px(x), y="12", class_="head") for head, x in zip(heads, columns, strict=True) if head
    ]
    return element(
        "svg",
        *named,
        element("g", *map(_band, drawing.bands), *map(_box, drawing.boxes), transform=f"translate(0 {_px(TOP)})"),
        element("g", *_labels(drawing), transform=f"translate(0 {_px(TOP)})"),
        viewBox=f"0 0 {_px(width)} {_px(TOP + drawing.height + 4)}",
        role="img",
        aria_label=_said(drawing),
    )


def _said(drawing: Drawing) -> str:
    """What the picture shows, for those who do not see it."""
    ways = [f"{band.source.label} to {band.target.label} {band.count:,}" for band in drawing.bands]
    return f"How many events went which way: {', '.join(ways)}"


def _band(band: Band) -> Markup:
    """A band keeps its width from edge to edge."""
    middle = _px((band.x + band.to_x) / 2)
    above, below = (_px(band.y), _px(band.to_y)), (_px(band.y + band.width), _px(band.to_y + band.width))
    path = (
        f"M{_px(band.x)} {above[0]}C{middle} {above[0]} {middle} {above[1]} {_px(band.to_x)} {above[1]}"
        f"V{below[1]}C{middle} {below[1]} {middle} {below[0]} {_px(band.x)} {below[0]}Z"
    )
    is_source = band.source.tone == BAD or band.target.tone == PLAIN
    tone = band.source.tone if is_source else band.target.tone
    said = f"{band.source.label} → {band.target.label}: {band.count:,}"
    return element(
        "path", element("title", said), d=path, class_=f"band {tone}", data_count=band.count, data_width=_px(band.width)
    )


def _box(box: Box) -> Markup:
    said = f"{box.place.label}: {box.place.count:,}; {box.place.says}"
    return element(
        "rect",
        element("title", said),
        x=_px(box.x),
        y=_px(box.y),
        width=_px(BOX),
        height=_px(box.height),
        rx="2",
        class_=f"box {box.place.tone}",
        data_place=box.place.name,
        data_count=box.place.count,
    )


def _labels(drawing: Drawing) -> list[Markup]:
    """Beside their boxes, over the bands."""
    found = []
    for box in drawing.boxes:
        x, y = _px(box.x + BOX + 7), box.y + box.height / 2
        found.append(element("text", box.place.label, x=x, y=_px(y - 3), class_="label"))
        found.append(element("text", f"{box.place.count:,}", x=x, y=_px(y + 13), class_="count"))
    return found


def _px(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
