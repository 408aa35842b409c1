"""Runs a random kernel eagerly and compiled, natively and not, and under hostile orders: always with the same bytes."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

import nki
from nki.core.errors import NkiError
from nki.driver.launch import Launch, trace_only
from nki.options import Options
from nki.passes.proof.happens_before import check
from nki.spec.program import Block, Program
from nki.target.load import load_target
from nki.testing.adversary import Policy, run_adversely
from tests.fuzz.programs import Case
from tests.support import environment

_SHOWN = 32
"""Bytes that are shown of a difference."""
_REPEATS = 3


@dataclass(frozen=True)
class Outcome:
    """What running a case showed.

    Attributes:
        instructions: of all cores, each loop body once.
        loops: of all cores.
        policies: that were run.
        faults: what went wrong, each beginning with what kind it is: "crash", "difference", "race".
    """

    seed: int
    instructions: int
    loops: int
    cores: int
    policies: int
    faults: tuple[str, ...]


def outcome(case: Case, policies: int = 3) -> Outcome:
    """Run a case in every way."""
    with warnings.catch_warnings(), environment(NEURON_PLATFORM_TARGET_OVERRIDE=case.target):
        warnings.simplefilter("ignore")
        return _outcome(case, policies)


def traced(case: Case) -> list[Program]:
    """The programs of a case, one for each core, as they are before all passes."""
    target, options = load_target(case.target), Options(target=case.target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tracers = trace_only(Launch(case.kernel, case.lnc), copy.deepcopy(case.arguments), {}, target, options)
    return [tracer.program for tracer in tracers]


def adverse(case: Case, programs: Sequence[Program], policy: Policy) -> list[bytes]:
    """The results of programs under a policy, as `flat` has them."""
    arrays = [np.array(a) for a in leaves(copy.deepcopy(case.arguments))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = run_adversely(programs, arrays, load_target(case.target), policy, Options(target=case.target))
    return [result.tobytes() for result in results]


def some_policies(programs: Sequence[Program], random: Random, count: int) -> list[Policy]:
    """Policies of all kinds that concern the queues of programs."""
    queues = sorted({sync.queue for program in programs for sync in _syncs(program.body)}) or ["vector"]
    made = [
        Policy(in_flight=True),
        Policy("random", seed=random.getrandbits(16), in_flight=True),
        Policy("late", random.choice(queues), in_flight=random.random() < 0.5),
        Policy("early", random.choice(queues), in_flight=random.random() < 0.5),
        Policy("random", seed=random.getrandbits(16)),
    ]
    return random.sample(made, min(count, len(made)))


def flat(results: Any) -> list[bytes]:
    """The bytes of every array in a tree of results."""
    return [np.asarray(leaf).tobytes() for leaf in leaves(results)]


def leaves(tree: Any) -> list[Any]:
    """The arrays of a tree in order."""
    return [leaf for item in tree for leaf in leaves(item)] if isinstance(tree, tuple | list) else [tree]


def _outcome(case: Case, count: int) -> Outcome:
    kernel, faults = _kernel(case), []
    found = Outcome(case.seed, 0, 0, case.lnc or 1, 0, ())
    try:
        with environment(NKI_NATIVE="always"):
            native = [flat(run(*copy.deepcopy(case.arguments))) for run in (nki.simulate(kernel), kernel)]
        with environment(NKI_NATIVE="0"):
            wanted = flat(nki.simulate(kernel)(*copy.deepcopy(case.arguments)))
            got = flat(kernel(*copy.deepcopy(case.arguments)))
    except (NkiError, AssertionError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        return replace(found, faults=(f"crash {type(error).__name__}: {error}",))
    programs = kernel.report.programs
    if got != wanted:
        faults.append(f"difference compiled: {differing(wanted, got)}")
    for mode, result in zip(("eager", "compiled"), native, strict=True):
        if result != wanted:
            faults.append(
                f"difference native {mode}: {differing(wanted, result)}, {_again(case, kernel, mode, wanted)}"
            )
    for race in check(programs, load_target(case.target))[:2]:
        faults.append(f"race {race.kind}: {race.message}")
    policies = some_policies(programs, Random(case.seed), count)
    for policy in policies:
        try:
            results = adverse(case, programs, policy)
        except (NkiError, AssertionError, LookupError, ValueError) as error:
            faults.append(f"crash {policy}: {type(error).__name__}: {error}")
            continue
        if results != got:
            faults.append(f"difference {policy}: {differing(got, results)}")
    return replace(
        found,
        instructions=sum(1 for program in programs for _ in program.body.walk()),
        loops=sum(_loops(program.body) for program in programs),
        policies=len(policies),
        faults=tuple(faults),
    )


def differing(wanted: Sequence[bytes], got: Sequence[bytes]) -> str:
    """Which results differ, and where: a fault that comes once leaves nothing else to look at."""
    if len(wanted) != len(got):
        return f"{len(wanted)} results, and {len(got)}"
    pairs = enumerate(zip(wanted, got, strict=True))
    return "results " + ", ".join(f"{number} ({_bytes(a, b)})" for number, (a, b) in pairs if a != b)


def _bytes(wanted: bytes, got: bytes) -> str:
    if len(wanted) != len(got):
        return f"{len(wanted)} bytes, and {len(got)}"
    a, b = (np.frombuffer(each, np.uint8) for each in (wanted, got))
    places = np.flatnonzero(a != b)
    first, last = int(places[0]), int(places[-1])
    part = slice(first, min(last + 1, first + _SHOWN))
    return f"{len(places)} of bytes {first} to {last}, {got[part].hex()} for {wanted[part].hex()}"


def _again(case: Case, kernel: Any, mode: str, wanted: Sequence[bytes]) -> str:
    """Whether a native execution that went wrong does so again in the same process."""
    run = nki.simulate(kernel) if mode == "eager" else kernel
    with environment(NKI_NATIVE="always"):
        count = sum(flat(run(*copy.deepcopy(case.arguments))) != wanted for _ in range(_REPEATS))
    return f"again in {count} of {_REPEATS} repetitions"


def _kernel(case: Case) -> Any:
    kernel = nki.jit(case.kernel, compile_config=case.config)
    return kernel[case.lnc] if case.lnc else kernel


def _syncs(block: Block) -> list[Any]:
    own = [sync for sync in block.sync or () if sync is not None]
    return own + [sync for item in block.items if hasattr(item, "body") for sync in _syncs(item.body)]


def _loops(block: Block) -> int:
    return sum(1 + _loops(item.body) for item in block.items if hasattr(item, "body"))
