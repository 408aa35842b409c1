"""What a pass is, and what it may ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from nki.compiler import CompileConfig
from nki.options import Options
from nki.spec.program import Program
from nki.spec.rule import Finding
from nki.target.model import Target


@dataclass(frozen=True, slots=True)
class Context:
    """The circumstances of one compilation.

    Attributes:
        target: what is compiled for.
        options: of the environment.
        config: settings of the kernel.
        notes: findings that passes add, warnings only; errors are raised.
        upper: ids of tensors in SBUF that begin in the middle of the partitions, beside others that end there.
        share: of SBUF that tensors without an address may take.
        foreseen: programs whose schedule was made to choose their addresses, each with the scheduled one, so that it is
            not made again. Nothing depends on it but time.
    """

    target: Target
    options: Options = field(default_factory=Options)
    config: CompileConfig = field(default_factory=CompileConfig)
    notes: list[Finding] = field(default_factory=list)
    upper: frozenset[int] = frozenset()
    share: float = 1.0
    foreseen: list[tuple[Program, Program]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Pass:
    """A step of the compiler: valid program in, valid program out, nothing changed in place.

    Attributes:
        name: as the command line and dumps spell it.
        summary: one sentence on what it does.
        run: the function.
    """

    name: str
    summary: str
    run: Callable[[Program, Context], Program]
