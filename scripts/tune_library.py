"""Tunes the tiles of the kernel library, and writes the winners to src/nkilib/tuned.

usage: python scripts/tune_library.py [--kernel NAME] [--case TEXT] [--gain FACTOR] [--dry-run] [--json FILE]

Of each case of benchmarks/library/cases that lists configurations of tiles, `nki.autotune` times them all for the
target of the case, runs the fastest, and holds its results against those of the kernel's own choice. A winner that is
faster than that by FACTOR is written with both times and the digest of the timing model that told them; of cases with
the same sizes the winner is the configuration that is best for all of them. The kernel's own choice is the entry that
is there already, or its rule: let the rule's tiles be among a case's configurations, so that an entry can give way to
it. Each entry is written as soon as it is found, and the file as a whole.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any

# The code beside this script, whatever is installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.library.case import Case
from benchmarks.library.cases import all_cases
from benchmarks.library.measure import target
from benchmarks.timing_cases.digest import digest

import nki
from nki.core.errors import NkiError
from nki.store.files import write_whole
from nki.target import load_target
from nkilib.catalogue import kernel

FOLDER = Path(__file__).resolve().parents[1] / "src" / "nkilib" / "tuned"


@dataclass(frozen=True)
class Found:
    """What tuning a case found.

    Attributes:
        case: that was tuned.
        tiles: of the fastest configuration; None if that is the kernel's own choice.
        ns, own_ns: times of the fastest and of the kernel's own choice.
        refused: why configurations have no time, by their label.
        seconds: that it took.
    """

    case: Case
    tiles: Mapping[str, int] | None
    ns: float
    own_ns: float
    refused: Mapping[str, str]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {**vars(self), "case": self.case.key, "gain": self.own_ns / self.ns}


@dataclass(frozen=True)
class Winner:
    """The tiles that are best for the cases of one entry.

    Attributes:
        tiles: None if no configuration is better than the kernel's own choice.
        times: ns of each case with these tiles, and with the kernel's own choice.
    """

    tiles: Mapping[str, int] | None
    times: Mapping[str, tuple[float, float]]

    @property
    def gain(self) -> float:
        """How many times as fast as its own choice the kernel is, the geometric mean of the cases."""
        return prod(own / ns for ns, own in self.times.values()) ** (1 / len(self.times))


def tuned(case: Case) -> Found:
    """Tune one case, with all of its data."""
    began = perf_counter()
    with target(case.target):
        tuner = nki.autotune(configs=[{"tiles": dict(tiles)} for tiles in case.tiles])(kernel(case.kernel)[case.lnc])
        found = tuner.tune(**replace(case, small=None).arrays())
    own = next(each for each in found.candidates if each.default)
    arguments = {config.label: config.arguments for config in tuner.configs}[found.chosen.label]
    assert found.chosen.ns is not None and own.ns is not None, f"{case.key} was not timed"
    refused = {each.label: each.reason for each in found.candidates if each.reason}
    return Found(case, arguments.get("tiles"), found.chosen.ns, own.ns, refused, perf_counter() - began)


def winner_of(found: Sequence[Found]) -> Winner:
    """The best of the cases' own winners for all of them, which a table cannot tell apart."""
    choices = [each.tiles for number, each in enumerate(found) if each.tiles not in [f.tiles for f in found[:number]]]
    winners = [Winner(tiles, {each.case.key: (_time(each, tiles), each.own_ns) for each in found}) for tiles in choices]
    return max(winners, key=lambda winner: winner.gain)


def _time(found: Found, tiles: Mapping[str, int] | None) -> float:
    if tiles == found.tiles:
        return found.ns
    case = found.case
    return nki.predict(kernel(case.kernel), target=case.target)[case.lnc](**case.shapes(), tiles=tiles).ns


def entry(case: Case, winner: Winner) -> dict[str, Any]:
    """The winner as the table has it."""
    times = {key: {"ns": round(ns, 1), "own_ns": round(own, 1)} for key, (ns, own) in winner.times.items()}
    return {"sizes": dict(case.sizes), "tiles": dict(winner.tiles or {}), "cases": times, "model": digest()}


def with_entry(table: dict[str, Any], name: str, new: dict[str, Any]) -> dict[str, Any]:
    """The table with an entry more, in the place of one for the same sizes; sorted, so that it is the same always."""
    entries = [each for each in table["kernels"].get(name, []) if each["sizes"] != new["sizes"]]
    entries = sorted([*entries, new], key=lambda each: sorted(each["sizes"].items()))
    return {**table, "kernels": dict(sorted({**table["kernels"], name: entries}.items()))}


def written(case: Case, winner: Winner, folder: Path) -> None:
    """Put a winner into the table of its target."""
    file = folder / f"{case.target}.json"
    generation = load_target(case.target).generation
    table = json.loads(file.read_text()) if file.exists() else {"generation": generation, "kernels": {}}
    table = with_entry(table, case.kernel, entry(case, winner))
    write_whole(file, f"{json.dumps(table, indent=1)}\n".encode())


def main() -> None:
    """Read the command line, and tune case after case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", default="", help="only this kernel")
    parser.add_argument("--case", default="", help="only cases with this in their name")
    parser.add_argument("--gain", type=float, default=1.01, help="how much faster a winner has to be; by default 1.01")
    parser.add_argument("--dry-run", action="store_true", help="write no table")
    parser.add_argument("--json", default="", help="a file that the findings go to")
    args = parser.parse_args()
    groups: dict[str, list[Case]] = {}
    for case in all_cases():
        if case.tiles and args.kernel in ("", case.kernel) and args.case in case.key:
            groups.setdefault(f"{case.kernel} {case.target} {sorted(case.sizes.items())}", []).append(case)
    findings: list[Mapping[str, Any]] = []
    for number, cases in enumerate(groups.values(), 1):
        print(f"[{number}/{len(groups)}] {cases[0].kernel}, {dict(cases[0].sizes)}")
        found = [each for case in cases if (each := told(case)) is not None]
        if not found:
            continue
        winner = winner_of(found)
        keep = winner.tiles is not None and winner.gain >= args.gain
        print(f"    {winner.tiles if keep else 'its own choice'}, {winner.gain:.2f} times as fast")
        findings += [each.to_json() for each in found]
        if keep and not args.dry_run:
            written(cases[0], winner, FOLDER)
        if args.json:
            write_whole(Path(args.json).resolve(), json.dumps(findings, indent=1).encode())


def told(case: Case) -> Found | None:
    """Tune a case, and print what was found; None if the kernel refuses it."""
    print(f"    {case.name}: {len(case.tiles)} configurations ... ", end="", flush=True)
    try:
        found = tuned(case)
    except NkiError as refused:
        print(refused)
        return None
    print(
        f"{found.tiles or 'its own choice'}, {found.ns / 1e3:.1f} of {found.own_ns / 1e3:.1f} µs, {found.seconds:.0f} s"
    )
    for label, reason in found.refused.items():
        print(f"        {label}: {reason}")
    return found


if __name__ == "__main__":
    main()
