"""Lines of assembly as words: what is between spaces, brackets on their own, strings in quotes, comments left out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from nki.asm.errors import damaged
from nki.core.errors import ArtifactError

_WORD = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|([()\[\]=])|([^\s()\[\]="#]+)|(#.*)|(\S))')
_INTEGER = re.compile(r"-?[0-9]{1,20}")


class Words:
    """The words of a line, taken from the left.

    Attributes:
        number: of the line, from 1.
    """

    def __init__(self, text: str, number: int) -> None:
        self.number = number
        self._at = 0
        self._words: list[str] = []
        for match in _WORD.finditer(text):
            if match[5] is not None:
                raise self.error(f"{match[5]!r} is not expected")
            if match[4] is None:
                self._words.append(match[0].strip())

    def error(self, message: str) -> ArtifactError:
        """The error for this line."""
        return damaged("asm.syntax", f"line {self.number}: {message}", "docs/assembly.md has the grammar")

    def more(self) -> bool:
        """Whether there are words left."""
        return self._at < len(self._words)

    def peek(self) -> str:
        """The next word, "" at the end."""
        return self._words[self._at] if self.more() else ""

    def is_before(self, word: str) -> bool:
        """Whether `word` follows the next one."""
        return self._words[self._at + 1 : self._at + 2] == [word]

    def word(self) -> str:
        """Take the next word."""
        if not self.more():
            raise self.error("the line ends too early")
        self._at += 1
        return self._words[self._at - 1]

    def take(self, word: str) -> bool:
        """Take the next word if it is this one."""
        found = self.peek() == word
        self._at += found
        return found

    def expect(self, word: str) -> None:
        """Take the next word, which is this one."""
        if not self.take(word):
            raise self.error(f"{word} is expected, not {self.peek() or 'the end'}"[:200])

    def after(self, word: str) -> Words:
        """Take this word, for what comes after it."""
        self.expect(word)
        return self

    def integer(self) -> int:
        """Take an integer."""
        word = self.word()
        if not _INTEGER.fullmatch(word):
            raise self.error(f"{word} is no integer"[:200])
        return int(word)

    def pair(self) -> tuple[int, int]:
        """Take two integers with a colon between them."""
        first, _, second = self.word().partition(":")
        if not _INTEGER.fullmatch(first) or not _INTEGER.fullmatch(second):
            raise self.error(f"{first}:{second} are no two integers"[:200])
        return int(first), int(second)

    def sigil(self, sign: str) -> int:
        """Take a number with a sign before it."""
        word = self.word()
        if not word.startswith(sign) or not _INTEGER.fullmatch(word[1:]):
            raise self.error(f"{sign}NUMBER is expected, not {word}"[:200])
        return int(word[1:])

    def text(self) -> str:
        """Take a string."""
        try:
            found = json.loads(self.word())
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, str):
            raise self.error("a string in quotes is expected")
        return found

    def counted(self, expected: int, number: int) -> None:
        """Rows of a table are numbered in order."""
        if number != expected:
            raise self.error(f"number {number} where {expected} is next")

    def finish(self) -> None:
        """Refuse what is left."""
        if self.more():
            raise self.error(f"{self.peek()} is not expected"[:200])


def lines(text: str) -> Iterator[Words]:
    """The lines that are not empty."""
    for number, line in enumerate(text.split("\n"), 1):
        words = Words(line, number)
        if words.more():
            yield words
