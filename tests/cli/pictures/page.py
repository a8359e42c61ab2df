"""A page of HTML, parsed: its elements with their attributes and texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"meta", "input", "br", "link", "img", "hr"}


@dataclass
class Element:
    """An element.

    Attributes:
        tag: its name.
        attributes: name → value; "" for one without a value.
        children: elements in it, in order.
        text: the text that is directly in it.
    """

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def all(self, *tags: str) -> list[Element]:
        """All elements below it with one of these names; without names all."""
        below: list[Element] = []
        for child in self.children:
            if not tags or child.tag in tags:
                below.append(child)
            below += child.all(*tags)
        return below

    def one(self, *tags: str) -> Element:
        """The only element below it with one of these names."""
        (element,) = self.all(*tags)
        return element

    def with_id(self, name: str) -> Element:
        """The only element with this id."""
        (element,) = (element for element in self.all() if element.attributes.get("id") == name)
        return element

    @property
    def full_text(self) -> str:
        """All text in it."""
        return self.text + "".join(child.full_text for child in self.children)

    @property
    def cells(self) -> list[list[str]]:
        """The cells of the rows of a table, its titles first."""
        return [[cell.full_text for cell in row.all("th", "td")] for row in self.all("tr")]


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("")
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in _VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].text += data


def parsed(text: str) -> Element:
    """The root of a page whose elements are all closed."""
    parser = _Parser()
    parser.feed(text)
    parser.close()
    return parser.root
