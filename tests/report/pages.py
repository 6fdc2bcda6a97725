"""Reading a page back."""

from html.parser import HTMLParser

VOID = {"meta", "img"}


class Page(HTMLParser):
    """What is in a page; an AssertionError where an element ends that is not the last begun."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.text = ""

    @classmethod
    def of(cls, text: str) -> "Page":
        found = cls()
        found.feed(text)
        found.close()
        return found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
