"""Grading, from the request to the verdict; nothing of a candidate runs in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from nki.core.errors import NkiError, UsageError
from nki.ir.build import build
from nki.ir.text import fingerprint
from nki.options import Options
from nki.spec.rule import Finding
from nki.target.model import Target
from nki.target.own import base_of
from nki.tools.grade.answers import Answers, answers_of
from nki.tools.grade.causes import causes, determinism, writes_arguments
from nki.tools.grade.places import hinted, placed
from nki.tools.grade.process.confine import Limits
from nki.tools.grade.process.files import Files
from nki.tools.grade.process.run import Heard, closed_to_others, run_process
from nki.tools.grade.process.task import Task
from nki.tools.grade.programs import SURPRISES, JudgedProgram, judge_program, poisoned, profiled, read_program
from nki.tools.grade.score import Times, roofline, score_of, times_of
from nki.tools.grade.sets import ArgumentSet, derived_sets
from nki.tools.grade.trials import Judgement, Question, Trial, answer, ask, in_time
from nki.tools.grade.verdicts import fault

_DERIVED = 3


@dataclass(frozen=True, slots=True)
class GradeRequest:
    """What is to be judged, and by what.

    Attributes:
        candidate, baseline: kernels; None for no baseline.
        sets: arguments; the first one is timed.
        derive: whether a further set of sizes is derived.
        judgement: how values are judged.
        lnc, grid: what the candidate is launched on; the baseline runs on as many cores.
        traces: in how many processes the candidate is traced, so that what depends on the process shows.
    """

    candidate: Files
    baseline: Files | None
    sets: Sequence[ArgumentSet]
    derive: bool
    judgement: Judgement
    target: Target
    options: Options
    lnc: int | None
    limits: Limits
    traces: int = 2
    grid: tuple[int | str, ...] = ()

    @property
    def cores(self) -> int:
        """How many cores the candidate runs on."""
        return prod((int(axis[2:]) for axis in self.grid if isinstance(axis, str)), start=self.lnc or 1)


@dataclass(slots=True)
class Grade:
    """A verdict. `score` is 0 if there is an error among the findings."""

    request: GradeRequest
    sets: list[ArgumentSet]
    heard: list[Heard]
    findings: list[Finding] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    times: Times | None = None
    advice: list[dict[str, Any]] = field(default_factory=list)
    score: float = 0.0
    fingerprints: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not any(finding.severity == "error" for finding in self.findings)


def grade(request: GradeRequest) -> Grade:
    """Judge a candidate.

    Raises:
        UsageError: the reference or the baseline cannot judge ("grade.reference", "grade.baseline").
    """
    questions = [_first_question(request)]
    asked = [*request.sets, *_derived(request)]
    heard, before = _processes(request, asked)
    made = Grade(request, asked, heard)
    if request.judgement.reference.installed:
        made.notes.append("the reference lies among installed packages, which a candidate can read")
    answers = [answers_of(each, len(asked)) for each in heard]
    for each in answers:
        made.findings += [fault for fault in each.faults if fault not in made.findings]
    programs = _programs(made, answers[0])
    if made.passed:
        made.findings += in_time_list(
            request.limits.seconds, lambda: _differing(answers, len(asked), request.target), "comparing the programs"
        )
    roof = _roofline(request, questions[0])
    if programs and 0 in programs:
        _judge_values(made, programs, questions[0])
        baseline_ns = None if before is None else _baseline_ns(request, before, questions[0])
        _time(made, programs[0], roof, baseline_ns)
    hidden = [request.judgement.reference.path, *([request.baseline.path] if request.baseline else [])]
    made.findings = [placed(hinted(each, request.candidate, hidden), request.candidate) for each in made.findings]
    if made.passed and made.times is not None:
        made.score = score_of(made.times)
    return made


def _first_question(request: GradeRequest) -> Question:
    try:
        kind = request.judgement.kinds(first=True)[0]
        return ask(request.judgement, request.sets[0], 0, kind)
    except UsageError:
        raise
    except NkiError as problem:
        raise UsageError(
            "grade.reference",
            f"the reference judges nothing: {problem.message}",
            rule="a reference takes the arguments of the kernel as float64 arrays, and returns what it should return",
            fix="correct the reference, or say with --range which numbers an argument has",
            location=problem.location,
        ) from problem


def _derived(request: GradeRequest) -> list[ArgumentSet]:
    """Sets of other sizes that the reference takes."""
    if not request.derive or len(request.sets) > 1:
        return []
    found = []
    for chosen in derived_sets(request.sets[0]):
        try:
            ask(request.judgement, chosen, 1, request.judgement.kinds(first=False)[0])
        except (NkiError, IndexError):
            continue
        found.append(chosen)
        if len(found) == _DERIVED:
            break
    return found


def _processes(request: GradeRequest, asked: Sequence[ArgumentSet]) -> tuple[list[Heard], Heard | None]:
    """Trace the candidate, more than once, and the baseline; at the same time, each in a process of its own."""
    texts = [chosen.texts() for chosen in asked]
    options = replace(request.options, target=base_of(request.target.name))

    def run(files: Files, sets: list[list[str]], lnc: int | None, grid: tuple[int | str, ...] = ()) -> Heard:
        name = f"{files.inside}::{files.name}" if files.name else str(files.inside)
        return run_process(files, Task(name, sets, lnc, options, grid), request.limits)

    with closed_to_others(), ThreadPoolExecutor(request.traces + 1) as pool:
        mine = [pool.submit(run, request.candidate, texts, request.lnc, request.grid) for _ in range(request.traces)]
        lnc = request.cores if request.grid else request.lnc
        other = None if request.baseline is None else pool.submit(run, request.baseline, texts[:1], lnc)
        return [each.result() for each in mine], None if other is None else other.result()


def _programs(made: Grade, answers: Answers) -> dict[int, JudgedProgram]:
    """Programs that may run, by the number of the set; of derived sets one, the first that the candidate takes."""
    request, programs = made.request, dict[int, JudgedProgram]()
    for number, chosen in enumerate(made.sets):
        if chosen.derived and any(made.sets[other].derived for other in programs):
            break
        if number in answers.refused:
            if chosen.derived:
                made.notes.append(f"the candidate does not take {chosen}: {answers.refused[number][-1].message}")
            else:
                made.findings += answers.refused[number]
            continue
        if number not in answers.traced:
            continue
        traced, cores = answers.traced[number], request.cores
        judged = in_time(
            request.limits.seconds,
            "checking the program",
            lambda t=traced, c=chosen, n=cores: judge_program(
                t, c, request.target, request.options, n, request.limits.memory
            ),
        )
        if isinstance(judged, JudgedProgram):
            programs[number] = judged
            made.fingerprints[number] = judged.fingerprint
            if number == 0:
                made.findings += [*answers.findings[0], *judged.findings]
        elif chosen.derived and not isinstance(judged, Finding):
            made.notes.append(f"the candidate does not take {chosen}: {judged[-1].message}")
        else:
            made.findings += [judged] if isinstance(judged, Finding) else judged
    return programs


def _differing(answers: Sequence[Answers], sets: int, target: Target) -> list[Finding]:
    """What depends on the process in which the candidate was traced."""
    for number in range(sets):
        found = {_traced_as(each, number, target) for each in answers}
        if len(found) > 1:
            return [
                fault(
                    "grade.nondeterministic",
                    f"the candidate was traced {len(answers)} times for set {number}, and gave {len(found)} programs",
                    "a kernel makes the same program for the same arguments in every process",
                    "use no clock, no random numbers and no order of a set while the kernel is traced",
                )
            ]
    return []


def _traced_as(answers: Answers, number: int, target: Target) -> str:
    if number not in answers.traced:
        return ""
    traced = answers.traced[number]
    try:
        return f"{fingerprint(build(read_program(traced, target)))} {traced.config} {traced.result}"
    except NkiError as problem:
        return problem.code
    except SURPRISES as problem:
        return type(problem).__name__


def _judge_values(made: Grade, programs: dict[int, JudgedProgram], first: Question) -> None:
    request, judgement = made.request, made.request.judgement
    options = poisoned(request.options)
    for number, judged in programs.items():
        for kind in judgement.kinds(first=number == 0):
            known = number == 0 and kind.name == first.kind.name
            question = first if known else ask(judgement, made.sets[number], number, kind)
            made.trials.append(answer(judgement, judged, question, request.target, options, request.limits.seconds))
            error = made.trials[-1].error
            if error is not None and error.code == "grade.time":  # the other kinds would take as long
                made.findings.append(error)
                return
    judged = programs[0]
    made.findings += writes_arguments(judged, made.trials)
    made.findings += in_time_list(
        request.limits.seconds,
        lambda: determinism(judged, made.trials[0], request.target, request.options),
        "running the program again",
    )
    made.findings += causes(made.trials, made.sets)


def in_time_list(seconds: float, work: Callable[[], list[Finding]], what: str) -> list[Finding]:
    """The findings of a check, or that it took too long."""
    found = in_time(seconds, what, work)
    return [found] if isinstance(found, Finding) else found


def _roofline(request: GradeRequest, first: Question) -> Callable[[JudgedProgram], float]:
    flops = request.judgement.reference.flops(request.sets[0], first.inputs)

    def of(judged: JudgedProgram) -> float:
        size = sum(view.nbytes for view in judged.programs[0].outputs)
        specs = list(request.sets[0].arrays.values())
        return roofline(specs, size, flops or 0.0, len(judged.programs), request.target)

    return of


def _time(made: Grade, judged: JudgedProgram, roof: Callable[[JudgedProgram], float], baseline: float | None) -> None:
    request = made.request
    outcome = made.trials[0].outcome if made.trials else None
    seconds = request.limits.seconds
    profile = in_time(seconds, "timing the program", lambda: profiled(judged, outcome, request.target))
    if isinstance(profile, Finding):
        made.findings.append(profile)
    else:
        made.times = times_of(profile, roof(judged), baseline)
        made.advice = profile.about.advice


def _baseline_ns(request: GradeRequest, heard: Heard, first: Question) -> float:
    """The predicted time of the baseline, which must be right itself.

    Raises:
        UsageError: "grade.baseline".
    """
    answers = answers_of(heard, 1)
    found = [each for each in [*answers.faults, *answers.refused.get(0, [])] if each.severity == "error"]
    if not found:
        cores, most = request.cores, request.limits.memory
        judged = judge_program(answers.traced[0], request.sets[0], request.target, request.options, cores, most)
        if isinstance(judged, JudgedProgram):
            options, seconds = poisoned(request.options), request.limits.seconds
            trial = answer(request.judgement, judged, first, request.target, options, seconds)
            if trial.passed:
                return profiled(judged, trial.outcome, request.target).about.makespan_ns
            found = causes([trial], request.sets)
        else:
            found = [each for each in judged if each.severity == "error"]
    raise UsageError(
        "grade.baseline",
        f"the baseline cannot be compared with: {found[0].message} ({found[0].code})",
        rule="a baseline is accepted by the checks and right for normal inputs",
        fix="correct it, or leave --baseline out",
        location=placed(found[0], request.baseline or request.candidate).location,
    )
