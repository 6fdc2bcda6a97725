"""HTML and SVG as values: what is not markup is text, and escaped where it meets markup."""

import base64
import hashlib
import html
from collections.abc import Iterable
from importlib.resources import files

VOID = {"meta"}  # elements that have no end


class Html(str):
    """Markup. Any other string is text; so is what `+` and f-strings make of markup."""

    __slots__ = ()


def escaped(value: object) -> Html:
    """The only way from text to markup."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def join(parts: Iterable[object], separator: str = "") -> Html:
    return Html(escaped(separator).join(map(escaped, parts)))


def tag(name: str, *children: object, **attributes: object) -> Html:
    """An element. Of attributes, None leaves out, True has no value, `class_` and `data_x` are
    written class and data-x."""
    written = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        written.append(key if value is True else f'{key}="{html.escape(str(number(value)))}"')
    start = f"<{' '.join(written)}>"
    return Html(start if name in VOID else f"{start}{join(children)}</{name}>")


def number(value: object) -> object:
    """A coordinate in tenths of a pixel; anything else as it is."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value


def table(titles: Iterable[object], rows: Iterable[Iterable[object]], **attributes: object) -> Html:
    """A table that scrolls sideways where it is too wide. The first column names the row."""
    head = tag("tr", *(tag("th", title, scope="col") for title in titles))
    body = []
    for first, *others in rows:
        cells = (cell if is_cell(cell) else tag("td", cell) for cell in others)
        body.append(tag("tr", tag("th", first, scope="row"), *cells))
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
    """The whole document. It may load nothing, and run no script but its own."""
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
