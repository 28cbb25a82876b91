"""HTML and SVG from Python: what is not markup already is escaped, so that nothing of the data can become it."""

from html import escape


class Markup(str):
    """Text that is HTML."""


def element(name: str, *children: object, **attributes: object) -> Markup:
    """An element; `class_` is its class, `data_x` its data-x, and what is None is left out."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{said}>{joined(*children)}</{name}>")


def joined(*children: object) -> Markup:
    """Children one after the other."""
    return Markup("".join(child if isinstance(child, Markup) else escape(str(child)) for child in children))
