"""Every operation of StableHLO, on random cases through the whole compiler, against JAX on the CPU.

Prints a table: operation, cases, how many are right, wrong and refused, and the largest errors. Usage:
``python benchmarks/stablehlo_ops.py [--ops NAME ...] [--count N] [--seed N] [--target NAME] [--json OUT]
[--markdown OUT]``; docs/stablehlo.md is what ``--markdown`` writes. Exit status 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.graph.stablehlo.checking import Outcome
from tests.graph.stablehlo.draw import Case
from tests.graph.stablehlo.table import FAMILIES, OPERATIONS, outcome

_SHOWN = 5
_COLUMNS = ("operation", "supported", "cases", "right", "wrong", "refused", "ulp", "absolute", "relative")


@dataclass
class Tally:
    """What became of the cases of one operation."""

    operation: str
    cases: int = 0
    right: int = 0
    wrong: int = 0
    refused: int = 0
    ulps: float = 0.0
    absolute: float = 0.0
    relative: float = 0.0
    reasons: dict[str, int] = field(default_factory=dict)
    mistakes: list[str] = field(default_factory=list)

    def add(self, number: int, case: Case, found: Outcome) -> None:
        """One more case."""
        self.cases += 1
        self.right += found.status == "right"
        self.wrong += found.status == "wrong"
        self.refused += found.status == "refused"
        if found.status == "right":
            self.ulps = max(self.ulps, found.ulps)
            self.absolute = max(self.absolute, found.absolute)
            self.relative = max(self.relative, found.relative)
        if found.status == "refused":
            self.reasons[found.why] = self.reasons.get(found.why, 0) + 1
        if found.status == "wrong" and len(self.mistakes) < _SHOWN:
            self.mistakes.append(f"case {number}: {found.why} ({case.note})")

    @property
    def supported(self) -> str:
        """Whether all, some or no cases compile."""
        return "yes" if not self.refused else "in part" if self.refused < self.cases else "no"

    def cells(self) -> tuple[str, ...]:
        """A row of the table."""
        counts = (self.cases, self.right, self.wrong, self.refused)
        errors = ("0" if not e else f"{e:.2g}" for e in (self.ulps, self.absolute, self.relative))
        return (self.operation, self.supported, *map(str, counts), *errors)


def measured(names: list[str], count: int, seed: int, target: str, console: Console) -> list[Tally]:
    """All cases of some operations, with a line of progress on the terminal's error stream."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    tallies = []
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(names) * count)
        for name in names:
            tally = Tally(name)
            for number in range(count):
                progress.update(task, description=f"{name:30}")
                tally.add(number, *outcome(name, number, seed, target))
                progress.advance(task)
            for mistake in tally.mistakes:
                console.print(f"[red]{name}[/red] {mistake}", markup=True, highlight=False)
            tallies.append(tally)
    return tallies


def shown(tallies: list[Tally]) -> Table:
    """The table for a terminal."""
    table = Table(*_COLUMNS)
    for tally in tallies:
        table.add_row(*tally.cells(), style="red" if tally.wrong else "yellow" if tally.refused else "")
    return table


def markdown(tallies: list[Tally], count: int, seed: int, target: str) -> str:
    """The page of the documentation."""
    by_name = {tally.operation: tally for tally in tallies}
    lines = [
        "# StableHLO operations",
        "",
        f"Written by `python benchmarks/stablehlo_ops.py --markdown docs/stablehlo.md`: {count} random cases of each",
        f"operation (seed {seed}) are compiled for {target} through all passes, emitters and the linker, run on the",
        "simulated device, and compared with JAX on the CPU. Shapes have rank 0 to 5; elements are float32, bfloat16,",
        "float16, integers of 8, 16 and 32 bits, and truth values; NaN, infinities, zeros of both signs, subnormal and",
        "the largest numbers are among them. Inputs of every seventh case are constants, which the compiler folds.",
        "",
        "Integers, truth values and everything that only moves elements agree bit by bit. `ulp` is the largest error",
        "in units of the last place of the result's type, `absolute` the largest difference, `relative` that divided",
        "by the largest magnitude of the result; sums and products are judged by the last one, so their ulp is 0.",
        "Where JAX takes subnormal numbers for zeros, what it computes in 64 bits counts as well. Angles are any",
        "numbers. What is refused is a `GraphError` with operation, types and the model's line.",
        "",
    ]
    for family, operations in FAMILIES.items():
        rows = [by_name[name] for name in operations if name in by_name]
        if rows:
            lines += [f"## {family.capitalize()}", "", f"| {' | '.join(_COLUMNS)} |", f"|{'---|' * len(_COLUMNS)}"]
            lines += [f"| {' | '.join(tally.cells())} |" for tally in rows] + [""]
    refusals = [(tally.operation, why) for tally in tallies for why in list(tally.reasons)[:_SHOWN]]
    if refusals:
        lines += ["## Refused", "", "| operation | reason |", "|---|---|"]
        lines += [f"| {name} | {why.replace('|', '/')} |" for name, why in refusals] + [""]
    return "\n".join([*lines, _total(tallies), ""])


def _total(tallies: list[Tally]) -> str:
    cases, right, wrong, refused = (
        sum(column) for column in zip(*((t.cases, t.right, t.wrong, t.refused) for t in tallies), strict=True)
    )
    return f"{len(tallies)} rows, {cases} cases: {right} right, {wrong} wrong, {refused} refused."


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", nargs="+", default=list(OPERATIONS), choices=list(OPERATIONS), metavar="NAME")
    parser.add_argument("--count", type=int, default=20, help="cases of each operation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="trn2")
    parser.add_argument("--json", type=Path, help="where the figures are written")
    parser.add_argument("--markdown", type=Path, help="where the page of the documentation is written")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    console = Console()
    tallies = measured(given.ops, given.count, given.seed, given.target, console)
    console.print(shown(tallies))
    console.print(_total(tallies))
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(tally) for tally in tallies], indent=1))
    if given.markdown is not None:
        given.markdown.write_text(markdown(tallies, given.count, given.seed, given.target))
    return int(any(tally.wrong for tally in tallies))


if __name__ == "__main__":
    sys.exit(main())
