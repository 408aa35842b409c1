"""From a model to an executable, stage by stage; each stage can be written to a folder and taken up again."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from nki.core.dtypes import bool_
from nki.core.errors import LaunchError
from nki.core.shown import shown
from nki.driver.prepare import chosen_target, default_options
from nki.graph import emit
from nki.graph.accepted import accepted
from nki.graph.admit import admit
from nki.graph.copies import copy_module
from nki.graph.errors import guarded
from nki.graph.executable import Executable
from nki.graph.ir import Function, Module, Value
from nki.graph.kernels import Emitter, Kernels
from nki.graph.link.bind import bind
from nki.graph.link.link import Linked, link, refuse_faults
from nki.graph.link.order import beside_collectives
from nki.graph.link.plan import MemoryPlan, plan
from nki.graph.link.steps import KernelRun, ModelSteps, steps_of, walk
from nki.graph.partition.choose import link_for_two
from nki.graph.partition.cut import cut_kernels, whole_kernels
from nki.graph.partition.divide import Division, divide
from nki.graph.partition.halves import Divisible
from nki.graph.partition.meeting_cost import check_lnc
from nki.graph.passes.context import GraphContext, Replacement, Traffic
from nki.graph.passes.pipeline import STAGES, run_passes
from nki.graph.patterns.choice import Times
from nki.graph.patterns.selection import replacements
from nki.graph.patterns.whole import Everything, left_out
from nki.graph.report import GraphReport, report_of
from nki.graph.stablehlo.read import read
from nki.graph.stablehlo.write import write
from nki.ir.build import build
from nki.ir.text import to_text
from nki.options import Options
from nki.runtime.model import Model
from nki.runtime.spans import span
from nki.spec.program import Program
from nki.store.artifact import container
from nki.store.artifact.model import ModelPart, Port, stored
from nki.store.keys import key_of
from nki.timing.cores import spent_by_cores

PLANNED, LINKED, NEFF = "plan.json", "linked.mlir", "model.neff"
"""Names of the files of later stages in a folder of dumps."""

IMPORTED, SIMPLIFIED, SETTING, REFERENCE = "imported", "simplified", "setting.json", "kernel-"
"""The first stage, and the one before patterns; the file that says how a model was compiled; what the names of the
user's kernels begin with."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How to compile a model.

    Attributes:
        name: of the model, for people.
        target: name of the target.
        options: of the compiler and of runs; by default those of the environment.
        dump_dir: folder where every stage is written, from which `nki.graph.resume` can go on; None for none.
        patterns: names of the kernel patterns that may replace parts of the model; None for all, empty for none.
        disabled: names of passes that are left out.
        donated: results that may take the memory of an argument, by position; None for what the model itself says.
        emitters: what makes kernels, by kind of group; None for those of this package.
        lnc: physical cores of the logical core that runs the model, 1 or 2.
    """

    name: str = "model"
    target: str = ""
    options: Options = field(default_factory=default_options)
    dump_dir: str | Path | None = None
    patterns: frozenset[str] | None = None
    disabled: frozenset[str] = frozenset()
    donated: Mapping[int, int] | None = None
    emitters: Mapping[str, Emitter] | None = None
    lnc: int = 1


def compile_module(module: Module | str | bytes, setting: Setting | None = None, **changes: Any) -> Executable:
    """Compile a model: ``compile_module(text, target="trn2", name="mlp")``.

    Args:
        module: records, or StableHLO as MLIR text, bytecode or a portable artifact. Records are changed.
        setting: how; the fields of `Setting` can also be given by name.

    Raises:
        LaunchError: "graph.setting" for a model or a setting of another kind.
        GraphError: "graph.*", at the model's line.
        NkiError: what the compiler of kernels raises.
    """
    _check(module, setting, changes)
    made = replace(setting or Setting(), **accepted("compile_module", "graph.setting", changes))
    with span(f"compile {made.name}", "compile"):
        return GraphCompilation(made).run(read(module) if isinstance(module, str | bytes) else module)


def _check(module: Any, setting: Any, changes: Mapping[str, Any]) -> None:
    known = [each.name for each in fields(Setting)]
    problem = None
    if not isinstance(module, Module | str | bytes):
        problem = f"module={shown(module)}", "a model is a Module, or StableHLO as str or bytes"
    elif setting is not None and not isinstance(setting, Setting):
        problem = f"setting={shown(setting)}", "setting is a Setting, or None"
    elif unknown := [name for name in changes if name not in known]:
        problem = f"{unknown[0]}=", f"settings are {', '.join(known)}"
    if problem is not None:
        fix = 'write compile_module(text, target="trn2", name="mlp")'
        raise LaunchError("graph.setting", f"compile_module got {problem[0]}", rule=problem[1], fix=fix)


class GraphCompilation:
    """One way through the stages."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._target = chosen_target(setting.target, setting.options.target)
        check_lnc(setting.name, setting.lnc, self._target)
        patterns = replacements(setting.patterns)
        self._context = GraphContext(
            self._target,
            setting.options,
            patterns=patterns,
            time_of=self.time_of,
            timed_as=_timed_as(setting, self._target.name),
            lnc=setting.lnc,
            disabled=setting.disabled,
        )
        self._folder = None if setting.dump_dir is None else Path(setting.dump_dir)
        self._seconds: dict[str, float] = {}
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            container.save(self._folder / SETTING, _written(setting, self._target.name))

    def run(self, module: Module, start: str = IMPORTED) -> Executable:
        """All stages after one that the model has reached.

        A model in which kernels of patterns save time is also linked without some of them, or without any; the fastest
        is what it becomes.
        """
        stages = [IMPORTED, *STAGES]
        chosen = stages.index(start) <= stages.index(SIMPLIFIED) and len(self._context.patterns) > 0
        if chosen:
            module = self._passed(module, start, SIMPLIFIED)
            start = SIMPLIFIED
        kept = copy_module(module) if chosen else None
        found = self._made(self._passed(module, start))
        if kept is None or not self._context.used:
            return found
        with span(f"compare {self._setting.name} without kernels of patterns", "compile"):
            used = {key: Times(*each) for key, each in self._context.used.items()}
            size = sum(1 for _ in kept.walk())
            without = left_out(used, self._ns(found.programs), size, partial(self._time_without, kept))
        if not (without or isinstance(without, Everything)):
            return found
        self._context = self._fresh(left_out=without)
        return self._made(self._passed(kept, SIMPLIFIED))

    def _passed(self, module: Module, start: str, end: str = "") -> Module:
        """A model taken from one stage to another one; each on the way is written to the folder, if there is one."""
        began = perf_counter()

        def reached(stage: str, made: Module) -> None:
            nonlocal began
            self._seconds[stage] = perf_counter() - began
            if self._folder is not None:
                number = [IMPORTED, *STAGES].index(stage)
                container.save(self._folder / f"{number:02}-{stage}.mlir", write(made).encode())
            began = perf_counter()

        if start == IMPORTED:
            admit(module, self._target)
            reached(IMPORTED, module)
        return run_passes(module, self._context, start=start, end=end, after=reached)

    def _made(self, module: Module) -> Executable:
        with guarded(f"making one program of {self._setting.name}"):
            return self.grouped(module)

    def grouped(self, module: Module) -> Executable:
        """What comes after the passes: the model is in groups."""
        setting, function = self._setting, module.main
        emitters = emit.EMITTERS if setting.emitters is None else setting.emitters
        kernels = Kernels(emitters, self._target, setting.options)
        began = perf_counter()
        steps = steps_of(function, kernels)
        beside_collectives(steps, self._target)
        self._seconds["kernels"] = perf_counter() - began
        names = _argument_names(function)
        cuts = self._cuts(steps)
        planned = plan(function, steps, bind(function, steps), names, self._donated(function))
        self._seconds["planned"] = perf_counter() - began - self._seconds["kernels"]
        began = perf_counter()
        linked, division = self._linked(steps, planned, cuts, kernels)
        refuse_faults(linked, self._target)
        self._seconds["linked"] = perf_counter() - began
        report = report_of(setting.name, self._context, function, steps, planned, linked, self._seconds, division)
        part = replace(_part(setting.name, function, names, steps, planned, report), kernels=linked.kernels)
        found = Executable(Model(part, linked.programs, self._target, setting.options), report)
        if self._folder is not None:
            _dump(self._folder, planned, linked, steps, found)
        return found

    def time_of(self, module: Module, patterns: Sequence[Replacement] = ()) -> float:
        """What a part of a model takes in ns, compiled as the model is; it is used up.

        Args:
            module: simplified.
            patterns: that may replace what is in it.
        """
        return self._time_in(module, self._fresh(patterns=patterns), {})

    def _time_without(self, module: Module, keys: Mapping[str, Times]) -> float:
        """What the model takes in ns where parts with these keys are left as they are."""
        context = self._fresh(left_out=keys)
        return self._time_in(copy_module(module), context, self._donated(module.main))

    def _fresh(self, **changes: Any) -> GraphContext:
        """The context, of which nothing is noted yet."""
        nothing: dict[str, Any] = {"left_out": {}, "used": {}, "replaced": [], "near": [], "references": []}
        return replace(self._context, **nothing | {"traffic": Traffic()} | changes)

    def _donated(self, function: Function) -> dict[int, int]:
        given = self._setting.donated
        return _donated(function) if given is None else dict(given)

    def _time_in(self, module: Module, context: GraphContext, donated: Mapping[int, int]) -> float:
        function = run_passes(module, context, start=SIMPLIFIED).main
        emitters = emit.EMITTERS if self._setting.emitters is None else self._setting.emitters
        kernels = Kernels(emitters, self._target, self._setting.options)
        steps = steps_of(function, kernels)
        beside_collectives(steps, self._target)
        cuts = self._cuts(steps)
        planned = plan(function, steps, bind(function, steps), _argument_names(function), donated)
        linked, _ = self._linked(steps, planned, cuts, kernels)
        return self._ns(linked.programs)

    def _ns(self, programs: Sequence[Program]) -> float:
        return max(spent.ns for spent in spent_by_cores(programs, self._target))

    def _cuts(self, steps: ModelSteps) -> dict[int, Divisible] | None:
        """The kernels for a model on two cores, by the identity of their programs; None for a model on one core."""
        found = list(walk(steps.steps))
        if self._setting.lnc > 1:
            return cut_kernels(found, self._target)
        several = any(isinstance(step, KernelRun) and len(step.programs) > 1 for step in found)
        return whole_kernels(found) if several else None

    def _linked(
        self, steps: ModelSteps, planned: MemoryPlan, cuts: dict[int, Divisible] | None, kernels: Kernels
    ) -> tuple[Linked, Division | None]:
        """The programs, and how the steps were divided if the model is compiled for two cores."""
        name, target = self._setting.name, self._target
        if cuts is None:
            return link(name, steps, planned, kernels, target), None
        if self._setting.lnc > 1:
            return link_for_two(name, steps, planned, cuts, kernels, target)
        return link(name, steps, planned, kernels, target, divide(steps, planned, cuts, 0.0, target).shares), None


def _timed_as(setting: Setting, target: str) -> str:
    """What the time of a part of a model depends on besides the part; emitters of the caller are like no others."""
    own = "" if setting.emitters is None else secrets.token_hex(16)
    return key_of(
        "timed", target=target, options=setting.options, lnc=setting.lnc, disabled=setting.disabled, emitters=own
    )


def _part(
    name: str, function: Function, names: Sequence[str], steps: ModelSteps, planned: MemoryPlan, report: GraphReport
) -> ModelPart:
    """The names, types and weights of a model."""
    constants = [
        Port(planned.slots[number].name, value.type.shape, value.type.dtype)
        for number, value in zip(planned.constants, steps.constants, strict=True)
    ]
    aliases = {
        result: planned.arguments.index(slot)
        for result, slot in enumerate(planned.outputs)
        if slot in planned.arguments
    }
    return ModelPart(
        name,
        tuple(Port(n, v.type.shape, v.type.dtype) for n, v in zip(names, function.arguments, strict=True)),
        tuple(
            Port(value.name or f"result{n}", value.type.shape, value.type.dtype)
            for n, value in enumerate(function.results)
        ),
        tuple(constants),
        tuple(_weight(array, value) for value, array in steps.constants.items()),
        aliases,
        report.lasting(),
    )


def _weight(array: np.ndarray, value: Value) -> np.ndarray:
    """A constant as the device holds it."""
    dtype = np.dtype(bool) if value.type.dtype == bool_ else value.type.dtype.numpy
    made = np.ascontiguousarray(np.broadcast_to(array, value.type.shape).astype(dtype, copy=False))
    return made.reshape(value.type.shape or (1,)).view(stored(value.type.dtype))


def _argument_names(function: Function) -> list[str]:
    """Names of the arguments, made different from each other."""
    names: list[str] = []
    for number, value in enumerate(function.arguments):
        name = value.name or f"argument{number}"
        names.append(name if name not in names else f"{name}_{number}")
    return names


def _donated(function: Function) -> dict[int, int]:
    """What the framework says about arguments whose memory results may take."""
    found = {}
    for number, attributes in enumerate(function.argument_attributes):
        result = attributes.get("tf.aliasing_output")
        if isinstance(result, int) and function.results[result].type == function.arguments[number].type:
            found[result] = number
    return found


def _written(setting: Setting, target: str) -> bytes:
    """What `resume` has to know of how a model was compiled."""
    found = {
        "name": setting.name,
        "target": target,
        "lnc": setting.lnc,
        "patterns": None if setting.patterns is None else sorted(setting.patterns),
        "disabled": sorted(setting.disabled),
        "donated": None if setting.donated is None else dict(setting.donated),
    }
    return json.dumps(found, indent=1).encode()


def _dump(folder: Path, planned: MemoryPlan, linked: Linked, steps: ModelSteps, found: Executable) -> None:
    """The stages that are no StableHLO, and the user's kernels."""
    slots = [{**asdict(slot), "dtype": slot.dtype.name} for slot in planned.slots]
    places = [{"value": str(value.type), "name": value.name, "slot": number} for value, number in planned.of.items()]
    container.save(folder / PLANNED, json.dumps({"slots": slots, "values": places}, indent=1).encode())
    container.save(folder / LINKED, to_text(build(linked.programs)).encode())
    for step in walk(steps.steps):
        if isinstance(step, KernelRun) and step.reference is not None:
            file = folder / f"{REFERENCE}{step.reference.key}.neff"
            container.save(file, container.pack(step.reference.programs))
    found.save(folder / NEFF)
