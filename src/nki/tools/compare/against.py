"""``--against``: in what a second run of the same kernel differs from the first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nki.core.errors import UsageError
from nki.core.source import UNKNOWN
from nki.options import ENVIRONMENT, Options
from nki.target.load import load_target
from nki.target.model import Target
from nki.tools.options import options_of

_PATH = re.compile(r"::|\.")
MODES = ("eager", "compiled")
FORMS = "eager, compiled, a target, or VARIABLE=VALUE for a switch of the environment, for example NKI_MATMUL=blas"

_INSTEAD = {
    "NKI_SIMULATOR": "write eager or compiled",
    "NEURON_PLATFORM_TARGET_OVERRIDE": "write the name of the target",
}


@dataclass(frozen=True, slots=True)
class Setup:
    """How one run is made; `changes` are the switches that differ from the environment."""

    mode: str
    target: Target
    options: Options
    changes: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join((f"{self.mode} on {self.target.name}", *self.changes))


def setups(words: Sequence[str], target: Target) -> tuple[Setup, Setup]:
    """The first run and the one that `words` ask for.

    Both run eagerly, unless a word names a mode: then the first run has the other one.

    Raises:
        UsageError: a word of no known form, two of one kind, or runs that are the same (``compare.against``).
        TargetError: an unknown target.
    """
    modes = [word for word in words if word in MODES]
    variables = dict(_variable(word) for word in words if "=" in word)
    targets = [word for word in words if word not in MODES and "=" not in word]
    if len(modes) > 1 or len(targets) > 1 or len(variables) < sum("=" in word for word in words):
        raise _wrong(f"--against {' --against '.join(words)} says one thing twice", "give each setting once")
    mode = modes[0] if modes else "eager"
    before = MODES[1 - MODES.index(mode)] if modes else "eager"
    if targets and _PATH.search(targets[0]):
        raise _wrong(
            f"--against {targets[0]} is no setting", "write --reference FILE::FUNCTION for a function of NumPy arrays"
        )
    first = _setup(before, target, {})
    second = _setup(mode, load_target(targets[0]) if targets else target, variables)
    _check(first, second)
    return first, second


def _setup(mode: str, target: Target, variables: Mapping[str, str]) -> Setup:
    options = replace(options_of(target.name, variables), simulator=mode == "eager")
    return Setup(mode, target, options, tuple(f"{name}={value}" for name, value in variables.items()))


def _check(first: Setup, second: Setup) -> None:
    if first.options == second.options:
        raise _wrong(f"both runs are {first}", "name another mode, target or switch")


def _variable(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    if name in _INSTEAD:
        raise _wrong(f"--against {word}", _INSTEAD[name])
    known = [each for each, _, _ in ENVIRONMENT if each not in _INSTEAD]
    if name not in known:
        raise _wrong(f"--against {word}: there is no switch {name}", f"use one of {', '.join(known)}")
    return name, value


def _wrong(message: str, fix: str) -> UsageError:
    return UsageError("compare.against", message, rule=f"--against is {FORMS}", fix=fix, location=UNKNOWN)
