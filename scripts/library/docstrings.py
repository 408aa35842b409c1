"""Docstrings as Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

_SECTIONS = ("Args", "Returns", "Raises", "Attributes", "Yields")
_TITLE = re.compile(r"^([A-Za-z][\w ,]{1,30}):(?= )")
_ITEM = re.compile(r"^(\S[^:]*): (.*)$")


def markdown(text: str) -> str:
    """Paragraphs: names in one pair of backquotes, the title of each but the first in bold, no tags of HTML."""
    paragraphs = text.strip("\n").replace("``", "`").split("\n\n")
    first, *others = (_paragraph(each, titled=bool(number)) for number, each in enumerate(paragraphs))
    return "\n\n".join([first, *others])


def _paragraph(text: str, titled: bool = False) -> str:
    if text.startswith("    "):  # a formula, which Markdown shows as it is
        return text
    quoted = re.split(r"(`[^`]*`)", _TITLE.sub(r"**\1:**", text) if titled else text)
    return "".join(each if each.startswith("`") else re.sub(r"<(?=\w)", "&lt;", each) for each in quoted)


class Docstring:
    """A docstring in Google's form.

    Attributes:
        text: what stands before the first section.
    """

    def __init__(self, text: str) -> None:
        parts = re.split(rf"^({'|'.join(_SECTIONS)}):\n", inspect.cleandoc(text), flags=re.MULTILINE)
        self.text = markdown(parts[0].strip())
        self._sections = list(zip(parts[1::2], parts[2::2], strict=True))

    def sections(self) -> Iterator[str]:
        """Each section as a heading and a list."""
        for title, content in self._sections:
            name = {"Args": "Arguments", "Returns": "Result", "Raises": "Errors"}.get(title, title)
            body = inspect.cleandoc(f"\n{content}")
            items: list[str] = []
            if title == "Returns":
                yield f"### {name}\n\n{markdown(body)}"
                continue
            for line in body.split("\n"):
                if line.startswith(" ") and items:
                    items[-1] += f" {line.strip()}"
                elif line:
                    items.append(line)
            yield f"### {name}\n\n" + "\n".join(f"* {self._item(item)}" for item in items)

    @staticmethod
    def _item(item: str) -> str:
        found = _ITEM.match(item)
        if found is None:
            return markdown(item)
        names = ", ".join(f"`{name.strip()}`" for name in found[1].split(","))
        return f"{names}: {_paragraph(found[2].replace('``', '`'))}"
