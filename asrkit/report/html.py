"""HTML and SVG as values: a string that is not `Html` is text, and is escaped inside markup."""

import base64
import hashlib
import html
from collections.abc import Iterable
from importlib.resources import files

VOID = {"meta"}  # elements that have no end


class Html(str):
    """Markup. Other strings are text, including the results of `+` and f-strings with markup."""

    __slots__ = ()


def escaped(value: object) -> Html:
    """Convert text to markup; only this function does."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def join(parts: Iterable[object], separator: str = "") -> Html:
    return Html(escaped(separator).join(map(escaped, parts)))


def tag(name: str, *children: object, **attributes: object) -> Html:
    """Return an element. Attributes: None and False are omitted, True is written without a value,
    `class_` and `data_x` become class and data-x."""
    written = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        written.append(key if value is True else f'{key}="{html.escape(str(number(value)))}"')
    start = f"<{' '.join(written)}>"
    return Html(start if name in VOID else f"{start}{join(children)}</{name}>")


def number(value: object) -> object:
    """Round a coordinate to tenths of a pixel; return other values unchanged."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value


def table(titles: Iterable[object], rows: Iterable[Iterable[object]], **attributes: object) -> Html:
    """Return a table that scrolls sideways if it is too wide. The first column names the row."""
    head = tag("tr", *(tag("th", title, scope="col") for title in titles))
    body = []
    for first, *others in rows:
        cells = (cell if is_cell(cell) else tag("td", cell) for cell in others)
        body.append(tag("tr", tag("th", first, scope="row", dir="auto"), *cells))
    return tag(
        "div", tag("table", tag("thead", head), tag("tbody", *body), **attributes), class_="scroll"
    )


def is_cell(value: object) -> bool:
    return isinstance(value, Html) and value.startswith("<td")


def section(name: str, title: str, *children: object) -> Html:
    return tag("section", tag("h2", title), *children, id=name)


def note(text: object) -> Html:
    return tag("p", text, class_="note")


def page(title: str, *children: object) -> Html:
    """Return the whole document. Its policy forbids loading, and all scripts except its own."""
    style, script = (
        Html(files("asrkit.report").joinpath(name).read_text(encoding="utf-8"))
        for name in ("page.css", "page.js")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; media-src data:; "
        f"script-src 'sha256-{digest}'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", style),
    )
    body = tag("body", *children, tag("script", script))
    return Html(f"<!doctype html>\n{tag('html', head, body, lang='en')}\n")
