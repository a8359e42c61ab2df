"""Charts as data for plotly.js, each with its text alternative, and the files of pages; nothing else imports plotly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from sharegroup.errors import EnvironmentNotReadyError

Rows = Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, and the same numbers as a table.

    Attributes:
        caption: how to read it, with units.
        layout: plotly's layout, less colours: these follow the reader's light or dark scheme.
        columns: titles of the table.
        rows: its cells.
    """

    title: str
    caption: str
    traces: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any]
    columns: Sequence[str]
    rows: Rows

    def to_json(self) -> str:
        """Return traces and layout as JSON, checked by plotly."""
        from plotly.graph_objects import Figure

        return str(Figure(data=list(self.traces), layout={**self.layout, "template": "none"}).to_json())


def require_plotly() -> None:
    """Check that plotly is installed.

    Raises:
        EnvironmentNotReadyError: it is not.
    """
    if find_spec("plotly") is None:
        raise EnvironmentNotReadyError(
            "plotly is missing, which draws the pictures.", "Install it: pip install 'sharegroup[pictures]'."
        )


def plotly_script() -> str:
    """Return plotly.js, to be part of a page.

    Raises:
        EnvironmentNotReadyError: plotly is not installed.
    """
    require_plotly()
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def escaped_json(text: str) -> str:
    """Return the text of a JSON document such that it cannot end the script element that it is in."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def asset(name: str) -> str:
    """Return a file of the package's assets."""
    return files("sharegroup.cli.pictures").joinpath("assets", name).read_text(encoding="utf-8")
