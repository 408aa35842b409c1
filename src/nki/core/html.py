"""Tables for notebooks: plain HTML that takes the page's colours, with every text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from nki.core.visible import visible

_CELL = "text-align:left;vertical-align:top;padding:0.1em 0.8em 0.1em 0"
"""Nothing here names a colour, so that the page's own are seen, whether it is light or dark."""


def html_table(
    title: str, rows: Iterable[Sequence[object]], headings: Sequence[str] = (), notes: Iterable[str] = ()
) -> str:
    """A table with a title above it and sentences below.

    Args:
        title: what it is about, in one line.
        rows: the cells of each row.
        headings: of the columns; none, if the first column says what a row is.
        notes: what is said below the table.
    """
    head = f"<thead><tr>{''.join(_cell('th', text) for text in headings)}</tr></thead>" if headings else ""
    body = "".join(f"<tr>{''.join(_cell('td', value) for value in row)}</tr>" for row in rows)
    said = "".join(f"<div>{_text(note)}</div>" for note in notes)
    return f"<div><strong>{_text(title)}</strong><table>{head}<tbody>{body}</tbody></table>{said}</div>"


def _cell(kind: str, value: object) -> str:
    return f'<{kind} style="{_CELL}">{_text(value)}</{kind}>'


def _text(value: object) -> str:
    return escape(visible(str(value)))
