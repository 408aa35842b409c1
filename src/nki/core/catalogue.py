"""What every error code means: the table behind `nki explain`; rules of instructions explain themselves."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Explanation:
    """One code.

    Attributes:
        title: what is wrong, in a few words.
        text: why it is an error and what to do, in a few sentences.
        wrong, right: a small example of each, or "".
    """

    title: str
    text: str
    wrong: str = ""
    right: str = ""


def read_catalogue(text: str) -> Mapping[str, Explanation]:
    """The table from TOML text: a table per code, with the fields of `Explanation`."""
    entries = {
        code: Explanation(**{key: value.strip("\n") for key, value in fields.items()})
        for code, fields in tomllib.loads(text).items()
    }
    return MappingProxyType(entries)


def close_codes(code: str, codes: Iterable[str]) -> list[str]:
    """Codes that `code` may have been meant to be, the likeliest first; also those that share its last part."""
    known = list(codes)
    last = code.rpartition(".")[2]
    same = [each for each in known if last and each.rpartition(".")[2] == last]
    return list(dict.fromkeys([*difflib.get_close_matches(code, known, n=3, cutoff=0.6), *same]))[:3]


CATALOGUE: Mapping[str, Explanation] = read_catalogue(
    (Path(__file__).resolve().parent / "catalogue.toml").read_text(encoding="utf-8")
)
