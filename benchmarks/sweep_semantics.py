"""Many more random cases of every engine-side instruction than the tests draw, against the same references.

Prints a line for each declaration: cases, operators and dtypes that appeared, compared elements, cases with mismatches;
and their totals. Usage: ``python benchmarks/sweep_semantics.py [--examples N] [--seed N] [--only NAME] [--compiled]
[--json OUT]``; N examples count once for each unit of a declaration's weight. With ``--compiled`` every case is also
compiled, and a bit that differs from eager execution is a mismatch. Exit status 1 if anything mismatched.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.isa.properties.cases import Case, check, run
from tests.isa.properties.families import PROPERTIES, Property

from nki.core.errors import NkiError

_SHOWN = 5
_HEAD = (
    f"{'declaration':26} {'cases':>7} {'operators':>9} {'dtypes':>6} {'elements':>11} {'mismatches':>10} {'seconds':>8}"
)


@dataclass
class Tally:
    """What was tried of one declaration."""

    instruction: str
    compiled: bool = False
    cases: int = 0
    elements: int = 0
    mismatches: int = 0
    seconds: float = 0.0
    operators: set[str] = field(default_factory=set)
    dtypes: set[str] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    found: list[str] = field(default_factory=list)

    def add(self, case: Case, item: Property) -> None:
        """Run a case."""
        self.cases += 1
        self.operators |= case.operators
        self.dtypes |= case.dtypes
        self.targets.add(case.target)
        try:
            outcome = check(case, item.reference)
            wrong = [*outcome.wrong, *(_modes(case) if self.compiled else ())]
        except (NkiError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            wrong = [f"{type(error).__name__}: {error}"]
        else:
            self.elements += outcome.compared
        if wrong:
            self.mismatches += 1
            self.found += [f"{'; '.join(wrong)} in {case!r}"] if len(self.found) < _SHOWN else []

    def row(self) -> str:
        """A line of the table."""
        counts = f"{self.cases:7} {len(self.operators):9} {len(self.dtypes):6} {self.elements:11} {self.mismatches:10}"
        return f"{self.instruction:26} {counts} {self.seconds:8.1f}"


def _modes(case: Case) -> list[str]:
    """The written buffers of which eager and compiled execution leave different bits."""
    pairs = zip(run(case)[0], run(case, compiled=True)[0], strict=True)
    return [
        f"call {call}: {name} differs between eager and compiled execution"
        for call, (eager, compiled) in enumerate(pairs)
        for name in eager
        if eager[name].tobytes() != compiled[name].tobytes()
    ]


def sweep(item: Property, examples: int, first: int, compiled: bool) -> Tally:
    """All cases of one declaration; progress goes to the terminal's error stream."""
    tally, started = Tally(item.instruction, compiled), time.process_time()
    wanted = examples * item.weight

    @seed(first)
    @settings(
        max_examples=wanted,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(item.strategy)
    def every(case: Case) -> None:
        tally.add(case, item)
        if sys.stderr.isatty() and tally.cases % 50 == 0:
            print(f"\r{item.instruction}: {tally.cases} of {wanted}", end="", file=sys.stderr, flush=True)

    every()
    tally.seconds = time.process_time() - started
    if sys.stderr.isatty():
        print("\r" + " " * 60, end="\r", file=sys.stderr, flush=True)
    return tally


def total(tallies: list[Tally]) -> Tally:
    """The sums, and the unions of operators and dtypes."""
    result = Tally("TOTAL")
    for tally in tallies:
        for name in ("cases", "elements", "mismatches", "seconds"):
            setattr(result, name, getattr(result, name) + getattr(tally, name))
        for name in ("operators", "dtypes", "targets"):
            getattr(result, name).update(getattr(tally, name))
    return result


def as_json(tally: Tally) -> dict[str, Any]:
    """Plain data."""
    return {name: sorted(value) if isinstance(value, set) else value for name, value in asdict(tally).items()}


def main() -> int:
    """Sweep and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=list(PROPERTIES), action="append")
    parser.add_argument("--compiled", action="store_true", help="compare the bits of both modes as well")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    tallies = []
    print(_HEAD, flush=True)
    for name in options.only or PROPERTIES:
        tallies.append(sweep(PROPERTIES[name], options.examples, options.seed, options.compiled))
        print(tallies[-1].row(), flush=True)
        for found in tallies[-1].found:
            print(f"    {found}", flush=True)
    everything = total(tallies)
    print(everything.row())
    if options.json:
        options.json.write_text(json.dumps([as_json(tally) for tally in (*tallies, everything)], indent=1))
    return 1 if everything.mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
