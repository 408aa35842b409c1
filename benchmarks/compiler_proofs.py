"""Proofs of what the compiler makes of kernels: order, bytes, every pass, hostile schedules. See `benchmarks.proofs`.

``schedules``: the named programs of `benchmarks.kernels.hostile` under hostile schedules, a row for each.
``stages``: the same programs, executed after every pass.
``launch FILE::KERNEL --arg NAME=VALUE``: any kernel, with arguments as ``nki compile`` takes them.
Usage: ``python benchmarks/compiler_proofs.py schedules [--count N] [--only WORD] [--json]``. Exit status 1 if anything
differs, and 2 if a program is refused.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.kernels.hostile import PROGRAMS
from benchmarks.proofs import Proof, proof

from nki.kernel import Kernel
from nki.tools.arguments import parse_arguments
from nki.tools.kernel_file import load_kernel

HEAD = ("program", "cores", "instr", "loops", "crossing", "waits", "stages", "schedules", "CPU s", "result")


def named(options: argparse.Namespace) -> Iterator[tuple[str, Proof]]:
    """Proofs of the named programs."""
    for program in PROGRAMS:
        if options.only in program.name:
            yield (
                program.name,
                proof(
                    program.made(),
                    program.arguments(),
                    {},
                    stages=options.work == "stages",
                    schedules=options.count,
                    seed=options.seed,
                ),
            )


def launched(options: argparse.Namespace) -> Iterator[tuple[str, Proof]]:
    """The proof of one kernel of a file."""
    found = load_kernel(options.kernel)
    kernel = Kernel(found.launch) if options.lnc is None else Kernel(found.launch)[options.lnc]
    values = parse_arguments(options.arg, options.seed)
    yield found.name, proof(kernel, (), values, stages=options.stages, schedules=options.count, seed=options.seed)


def row(name: str, found: Proof) -> tuple[str, ...]:
    """One line of the table."""
    numbers = (found.cores, found.instructions, found.loops, found.crossing, found.waits)
    result = "refused" if found.refused else f"{len(found.faults)} faults" if found.faults else "equal"
    return name, *map(str, numbers), str(len(found.stages)), str(found.schedules), f"{found.seconds:.2f}", result


def show(proofs: list[tuple[str, Proof]]) -> None:
    """The table, what is wrong, and sums."""
    lines = [HEAD, *(row(name, found) for name, found in proofs)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    for line in lines:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())
    for name, found in proofs:
        for fault in (*found.faults, *([f"refused: {found.refused}"] if found.refused else ())):
            print(f"{name}: {fault}")
    all_of = [found for _, found in proofs]
    print(
        f"{len(all_of)} programs, {sum(p.cores == 2 for p in all_of)} on two cores, {sum(p.loops > 0 for p in all_of)} "
        f"with loops, {sum(p.schedules for p in all_of)} hostile runs, {sum(len(p.stages) for p in all_of)} stages, "
        f"{sum(bool(p.faults) for p in all_of)} with a fault, {sum(bool(p.refused) for p in all_of)} refused, "
        f"{sum(p.core_races > 0 for p in all_of)} with races of their own"
    )


def main() -> None:
    """Prove and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    works = parser.add_subparsers(dest="work", required=True)
    for name, count in (("schedules", 20), ("stages", 0), ("launch", 6)):
        work = works.add_parser(name)
        work.add_argument("--count", type=int, default=count, help="hostile schedules for each program")
        work.add_argument("--seed", type=int, default=0)
        work.add_argument("--json", action="store_true", help="print JSON instead of a table")
        if name == "launch":
            work.add_argument("kernel", metavar="FILE::KERNEL")
            work.add_argument("--arg", action="append", default=[])
            work.add_argument("--lnc", type=int)
            work.add_argument("--stages", action="store_true", help="execute the program after every pass")
        else:
            work.add_argument("--only", default="", help="programs whose name has this in it")
    options = parser.parse_args()
    proofs = list(launched(options) if options.work == "launch" else named(options))
    if options.json:
        print(json.dumps([{"program": name, **asdict(found)} for name, found in proofs], indent=1))
    else:
        show(proofs)
    wrong, refused = any(found.faults for _, found in proofs), any(found.refused for _, found in proofs)
    sys.exit(1 if wrong else 2 if refused else 0)


if __name__ == "__main__":
    main()
