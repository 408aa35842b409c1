"""What a pass is, what it may ask, and what it hands on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from nki.compiler import CompileConfig
from nki.options import Options
from nki.passes.imitation import Imitation, imitation
from nki.spec.kept_load import KeptLoad
from nki.spec.program import Program
from nki.spec.rule import Finding
from nki.target.model import Target
from nki.timing.loops import Spent


@dataclass(frozen=True, slots=True)
class Context:
    """The circumstances of one compilation.

    Attributes:
        target: what is compiled for.
        options: of the environment.
        config: settings of the kernel.
    """

    target: Target
    options: Options = field(default_factory=Options)
    config: CompileConfig = field(default_factory=CompileConfig)

    @property
    def imitation(self) -> Imitation:
        """What the passes do as the device's compiler does it, by `Options.imitate`."""
        return imitation(self.options.imitate)


@dataclass(frozen=True, slots=True)
class PassResult:
    """What a pass makes of the program of one core.

    Attributes:
        program: the program after the pass.
        findings: what the pass has to say about it, warnings only; errors are raised.
        scheduled: makes the same program with the schedule for which its addresses were chosen, so that the scheduler
            need not look for it again. It is for the pass that comes next and for no later one. Nothing depends on it
            but time.
        spent: by that schedule on the timeline.
        kept: loads that the pass left out, because what they bring was there.
    """

    program: Program
    findings: tuple[Finding, ...] = ()
    scheduled: Callable[[], Program] | None = None
    spent: Spent | None = None
    kept: tuple[KeptLoad, ...] = ()


@dataclass(frozen=True, slots=True)
class Pass:
    """A step of the compiler: valid program in, valid program out, nothing changed in place.

    Attributes:
        name: as the command line and dumps spell it.
        summary: one sentence on what it does.
        step: the function, from what the pass before handed on to what this one hands on.
    """

    name: str
    summary: str
    step: Callable[[PassResult, Context], PassResult]

    def run(self, program: Program, context: Context) -> Program:
        """The program after this pass alone, whatever the pass has to say."""
        return self.step(PassResult(program), context).program


def rewriting(name: str, summary: str, rewrite: Callable[[Program, Context], Program]) -> Pass:
    """A pass that makes another program and has nothing to say about it."""
    return Pass(name, summary, lambda before, context: PassResult(rewrite(before.program, context)))
