"""Pieces of HTML; all that comes from the data is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files

from sharegroup.cli.pictures.drawing import Rows

_NUMBER = ' class="number"'


def asset(name: str) -> str:
    """Return a file of the package's assets."""
    return files("sharegroup.cli.pictures").joinpath("assets", name).read_text(encoding="utf-8")


def table_html(caption: str, columns: Sequence[str], rows: Rows) -> str:
    """Return a table that scrolls by itself, also by keyboard.

    Args:
        caption: its name.
        columns: the titles.
        rows: the cells; numbers are aligned to the right, None is shown as a dash.
    """
    numbers = [any(_is_number(row[index]) for row in rows) for index in range(len(columns))]
    head = "".join(
        f'<th scope="col"{_NUMBER if is_number else ""}>{escape(title)}</th>'
        for title, is_number in zip(columns, numbers, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    if not rows:
        body = f'<tr><td colspan="{len(columns)}">none</td></tr>'
    name = escape(caption, quote=True)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table><caption>{name}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if value is None:
        return "<td>&ndash;</td>"
    if _is_number(value):
        return f"<td{_NUMBER}>{value:,}</td>"
    return f"<td>{escape(str(value))}</td>"
