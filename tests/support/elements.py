"""What an HTML page consists of."""

from html.parser import HTMLParser


class Elements(HTMLParser):
    """A page's elements with their attributes, and the texts of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], list[str]]] = []
        self.is_inside = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.is_inside = tag == "script"
        if self.is_inside:
            self.scripts.append((dict(attrs), []))

    def handle_endtag(self, tag: str) -> None:
        self.is_inside = False

    def handle_data(self, data: str) -> None:
        if self.is_inside:
            self.scripts[-1][1].append(data)

    def script(self, name: str | None) -> str:
        """The text of the one script with this id, or without any."""
        (text,) = ["".join(pieces) for attributes, pieces in self.scripts if attributes.get("id") == name]
        return text
