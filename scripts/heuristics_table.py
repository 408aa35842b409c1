"""Which heuristics of the list scheduler earn their place: the programs that each row of the table is the best for.

For every row of `nki.passes.order_search.heuristics`: how many programs take an order that it made, the change of the
geometric mean of all makespans if the table has no such row, and the programs that are longer then, or shorter, because
the rows after it are reached. A row that no program misses is of no use.

Programs are those of `benchmarks.kernels.cases`, loops with `CompileConfig.prefetch_auto`; of several cores the slower
one counts, each by itself. Usage: ``python scripts/heuristics_table.py [--only WORD] [--targets NAME,NAME] [--json]``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.kernels.cases import LOOPS, MIXED, SEARCHED, STRAIGHT, Case
from benchmarks.schedule_quality import programs_of

from nki.compiler import CompileConfig
from nki.passes import allocate_and_schedule
from nki.passes.context import Context
from nki.passes.order_search.candidates import Candidate, Start
from nki.passes.order_search.choice import MOST_TIMED
from nki.passes.order_search.heuristics import HEURISTICS, Heuristics
from nki.passes.order_search.search import is_searched, search
from nki.passes.pipeline import PIPELINE, compile_programs
from nki.passes.scheduling.list_schedule import Heuristic
from nki.passes.scheduling.tasks import Tasks
from nki.spec.program import Program
from nki.target.load import load_target

BEFORE = PIPELINE[: PIPELINE.index(allocate_and_schedule.PASS)]
"""The passes before the search."""


class Subject(NamedTuple):
    """The programs of one kernel as the search gets them, one for each core."""

    label: str
    programs: tuple[Program, ...]
    context: Context

    @property
    def several(self) -> bool:
        """Whether the programs are small enough for several orders."""
        return all(sum(1 for _ in program.body.walk()) <= MOST_TIMED for program in self.programs)

    def best(self, heuristics: Heuristics) -> Candidate:
        """What the search takes, of the slower core."""
        tasks = Tasks(self.context.target)
        found = [search(Start(program), self.context, tasks, heuristics) for program in self.programs]
        return max(found, key=lambda candidate: candidate.makespan)


class Row(NamedTuple):
    """One heuristic of one column of the table.

    Attributes:
        column: of `Heuristics`.
        taken: labels of the programs that take an order of this row.
        without: by label, how many times as long a program takes without this row, where that is not 1.
    """

    column: str
    heuristic: Heuristic
    taken: tuple[str, ...]
    without: Mapping[str, float]

    @property
    def name(self) -> str:
        """What differs from the heuristic without any settings."""
        plain = Heuristic()._asdict()
        return ", ".join(f"{k}={v}" for k, v in self.heuristic._asdict().items() if v != plain[k]) or "plain"


def subjects(word: str, targets: Sequence[str]) -> Iterator[Subject]:
    """All kernels whose label contains a word and for which orders are looked for, once each.

    Args:
        word: that the label contains.
        targets: names of those to compile each kernel for; none for the one that its case names.
    """
    plain, unrolled = CompileConfig(), CompileConfig(prefetch_auto=True)
    straight = [(case, case.label, plain) for case in _for_targets((*STRAIGHT, *MIXED, *SEARCHED), targets)]
    loops = [(case, f"{case.label} unrolled", unrolled) for case in _for_targets(LOOPS, targets)]
    for case, label, config in (*straight, *loops):
        if word in label:
            found = subject(case, label, config)
            if found is not None:
                yield found


def _for_targets(cases: Sequence[Case], targets: Sequence[str]) -> list[Case]:
    """The cases for each target that has as many cores as they want."""
    loaded = [load_target(name) for name in targets]
    fitting = [c._replace(target=t.name) for t in loaded for c in cases if (c.cores or 1) in t.lnc]
    found = fitting if targets else cases
    return list({(case.label, case.cores): case for case in found}.values())


def subject(case: Case, label: str, config: CompileConfig) -> Subject | None:
    """A kernel that has gone through the passes before the search; None if no orders are looked for."""
    context = Context(load_target(case.target), config=config)
    found = compile_programs(programs_of(case, context.target), context, BEFORE).programs
    return Subject(label, found, context) if all(is_searched(program, config) for program in found) else None


def rows(found: Sequence[Subject], heuristics: Heuristics) -> Iterator[Row]:
    """The table, row by row."""
    whole = {subject.label: subject.best(heuristics) for subject in found}
    for column, members in heuristics._asdict().items():
        several = column == "several"
        mine = {each.label: whole[each.label] for each in found if each.several == several}
        for number, heuristic in enumerate(members):
            less = heuristics._replace(**{column: (*members[:number], *members[number + 1 :])})
            taken = tuple(label for label, best in mine.items() if best.order.heuristic == heuristic)
            without = {
                each.label: each.best(less).makespan / mine[each.label].makespan for each in found if each.label in mine
            }
            yield Row(column, heuristic, taken, {label: ratio for label, ratio in without.items() if ratio != 1.0})


def table(found: Sequence[Row], programs: int) -> str:
    """The rows for people."""
    lines = [f"{'heuristic':42}{'taken':>6}{'mean':>9}  longer without it"]
    column = ""
    for row in found:
        if row.column != column:
            column = row.column
            lines.append(f"-- {column}")
        worse = sorted(row.without.items(), key=lambda item: -item[1])
        mean = math.exp(sum(map(math.log, row.without.values())) / programs) - 1
        told = ", ".join(f"{label} {ratio - 1:+.2%}" for label, ratio in worse)
        lines.append(f"{row.name:42}{len(row.taken):>6}{mean:>+9.3%}  {told}")
    idle = [row for row in found if not row.taken]
    lines.append(f"{len(found) - len(idle)} of {len(found)} rows are taken for some of {programs} programs")
    return "\n".join(lines)


def main() -> None:
    """Search and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="programs whose label contains this")
    parser.add_argument("--targets", default="", help="compile every kernel for these, not for its own one only")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    found = list(subjects(options.only, [name for name in options.targets.split(",") if name]))
    made = list(rows(found, HEURISTICS))
    if not options.json:
        print(table(made, len(found)))
        return
    told: list[dict[str, Any]] = [{**row._asdict(), "heuristic": row.heuristic._asdict()} for row in made]
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
