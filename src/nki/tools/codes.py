"""Every code there is: those of the catalogue, the rules of the instructions, and those of the advice of profiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nki.isa  # noqa: F401 - declares the instructions
from nki.core.catalogue import CATALOGUE, Explanation, read_catalogue
from nki.profiling.advice import __file__ as _ADVICE
from nki.spec.instruction import REGISTRY, Instruction
from nki.spec.rule import Rule
from nki.target.model import Target


@dataclass(frozen=True, slots=True)
class RuleEntry:
    """A rule with the instruction that it belongs to."""

    instruction: Instruction[...]
    rule: Rule

    @property
    def code(self) -> str:
        """What errors print."""
        return f"{self.instruction.name}.{self.rule.code}"

    def sentence(self, target: Target) -> str:
        """What must hold, with the target's numbers."""
        return self.rule.sentence.format(t=target)


@cache  # the declarations do not change
def rule_entries() -> dict[str, RuleEntry]:
    """All rules of all instructions by code."""
    entries = [RuleEntry(declared, rule) for declared in REGISTRY.values() for rule in declared.rules]
    return {entry.code: entry for entry in entries}


@cache  # a file of the package, which does not change
def advice_entries() -> Mapping[str, Explanation]:
    """What the rules of the advice mean, by name."""
    return read_catalogue((Path(_ADVICE).parent / "advice.toml").read_text(encoding="utf-8"))


@cache  # a command asks several times
def all_codes() -> dict[str, Explanation | RuleEntry]:
    """Everything that `nki explain` can explain, sorted by code."""
    together: dict[str, Explanation | RuleEntry] = {**CATALOGUE, **advice_entries(), **rule_entries()}
    return dict(sorted(together.items()))
