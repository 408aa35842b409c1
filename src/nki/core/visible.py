"""Names that come from files, as a terminal and a file system may have them."""

from __future__ import annotations

import re

_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and line feed
    "\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # no width
    "\u2028\u2029\ud800-\udfff]"  # other ends of lines, halves of characters
)
_NO_NAME = re.compile(r"[^\w.+=@-]+")
_LONGEST_NAME = 100


def visible(text: str) -> str:
    """A text in which every character is seen, and none is obeyed.

    A terminal obeys control characters and changes the order of what follows a bidirectional one. They are shown as
    Python would write them: ``\\x1b``, ``\\u202e``.
    """
    return _OBEYED.sub(lambda found: ascii(found[0])[1:-1], text)


def file_name(text: str) -> str:
    """A name as one part of a path, which stays in its folder whatever the name is."""
    return _NO_NAME.sub("_", text).lstrip(".")[:_LONGEST_NAME] or "_"
