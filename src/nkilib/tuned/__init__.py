"""Sizes of tiles that were found to be the best, for each generation in a file beside this one.

``scripts/tune_library.py`` asks `nki.autotune` for the best configuration of a kernel in each of the realistic calls of
``benchmarks/library/cases``, and writes the winners down. A kernel asks `choose` while it is traced. The tables are
constants of this module, so that they are part of what a compiled kernel depends on: with another table it is compiled
anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from math import log2
from types import MappingProxyType
from typing import Any

import nki.isa as nisa
from nkilib.errors import KernelLimit

NEAR = 2.0
"""A call and an entry are alike if each size of the one is at most this many times that of the other."""

Entry = tuple[Mapping[str, int], Mapping[str, int]]
"""Sizes of the call that was tuned, and the tiles that were the best for it."""


def tables(contents: Iterable[Mapping[str, Any]]) -> Mapping[int, Mapping[str, tuple[Entry, ...]]]:
    """The entries of each kernel, by generation, from what the files contain."""
    return MappingProxyType(
        {
            content["generation"]: MappingProxyType(
                {
                    kernel: tuple((entry["sizes"], entry["tiles"]) for entry in entries)
                    for kernel, entries in content["kernels"].items()
                }
            )
            for content in contents
        }
    )


def _written() -> Iterable[Mapping[str, Any]]:
    found = sorted((each for each in files(__name__).iterdir() if each.name.endswith(".json")), key=lambda f: f.name)
    return [json.loads(each.read_text(encoding="utf-8")) for each in found]


TABLES = tables(_written())
"""By generation (`nki.isa.nc_version`) and kernel."""


def choose(
    kernel: str, sizes: Mapping[str, int], default: Mapping[str, int], given: Mapping[str, int] | None = None
) -> dict[str, int]:
    """The sizes of tiles for a call; to be called in a kernel, whose target decides which table is asked.

    An entry counts if it has the names of `sizes`, if its tiles have names of `default`, and if each of its sizes is at
    most `NEAR` times the call's, and the other way round. Of those the nearest is taken: that with the least sum of the
    absolute logarithms of the quotients of sizes, and of equally near ones the first in the table.

    Args:
        kernel: name in the catalogue.
        sizes: what the best tiles depend on, such as rows and columns: positive numbers by name.
        default: tiles by name: the rule for calls that no entry is near, and for names that the entry has not.
        given: what the caller of the kernel says, usually its argument ``tiles``; comes first. Some names are enough.

    Returns:
        A number for each name in `default`.

    Raises:
        KernelLimit: `given` has a name that `default` has not (``nkilib.argument``).
    """
    strangers = [name for name in given or () if name not in default]
    if strangers:
        raise KernelLimit(
            "nkilib.argument",
            f"tiles of {kernel} has {strangers[0]!r}",
            rule=f"tiles of {kernel} are {', '.join(default)}",
            fix=f"name some of {', '.join(default)}",
        )
    entries = TABLES.get(int(nisa.get_nc_version()), {}).get(kernel, ())
    near = [entry for entry in entries if entry[0].keys() == sizes.keys() and entry[1].keys() <= default.keys()]
    near = [entry for entry in near if all(abs(each) <= log2(NEAR) for each in _distances(entry, sizes))]
    found = min(near, key=lambda entry: sum(map(abs, _distances(entry, sizes))))[1] if near else {}
    return {**default, **found, **(given or {})}


def _distances(entry: Entry, sizes: Mapping[str, int]) -> list[float]:
    return [log2(size / entry[0][name]) for name, size in sizes.items()]
