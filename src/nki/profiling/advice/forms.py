"""Other instructions that compute the same: on another engine, and what each of them would cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from nki.core.tensor import View
from nki.isa import alu, functions
from nki.isa.activations import activation
from nki.isa.copy import tensor_copy
from nki.isa.elementwise import tensor_scalar, tensor_tensor
from nki.isa.reduce import tensor_reduce
from nki.profiling.advice.ranking import Evidence
from nki.profiling.facts.change import recipe_of
from nki.spec.engine import engine as Engine
from nki.spec.engine import reduce_cmd
from nki.spec.instruction import Instruction
from nki.spec.program import Issued
from nki.spec.verify import verify
from nki.target.model import Target
from nki.timing.cost import signature
from nki.timing.recipe import Recipe

SUM = "reduce_op=nl.add, reduce_res=total, reduce_cmd=nisa.reduce_cmd.reset_reduce"
"""How an activation is told to add up its results."""


class Form(NamedTuple):
    """An instruction that does the work of another one, and how a kernel writes it."""

    issued: Issued
    text: str


class Forms:
    """Other forms of the instructions of one program, as far as they are legal."""

    def __init__(self, evidence: Evidence) -> None:
        self._core = evidence.core
        self._legal: dict[Any, bool] = {}
        self._recipes: dict[Any, Recipe] = {}

    def recipe(self, issued: Issued) -> Recipe | None:
        """What an instruction would cost; None if it breaks a rule."""
        key = signature(issued)
        if key not in self._legal:
            self._legal[key] = not verify(issued, self._core.target)
            if self._legal[key]:
                self._recipes[key] = recipe_of(self._core, issued)
        return self._recipes.get(key)

    def elsewhere(self, position: int, unit: str) -> tuple[Form, Recipe] | None:
        """The cheapest legal form of an instruction on another engine."""
        issued = self._core.items[position]
        if _exact(issued):
            return None
        found = []
        for form in _elsewhere(issued, self._core.target):
            recipe = self.recipe(form.issued)
            if form.issued.engine.name == unit and recipe is not None:
                found.append((form, recipe))
        return min(found, key=lambda item: item[1].ns, default=None)


def _exact(issued: Issued) -> bool:
    """Whether it works on 32-bit integers, which only some engines keep exact."""
    return any(view.dtype.kind in ("int", "uint") and view.dtype.itemsize == 4 for _, view in issued.views())


def made(instruction: Instruction[Any], runs: Engine, like: Issued, /, **given: Any) -> Issued:
    """An instruction in the place of another one; arguments that are not given have their defaults."""
    parameters = instruction.__signature__.parameters
    values = [given.get(name, parameters[name].default) for name in instruction.operands]
    return Issued(instruction, instruction.arguments(*values), like.location, runs)


def adds_up(issued: Issued) -> bool:
    """Whether it is a `tensor_reduce` that adds up all of each partition."""
    a = issued.arguments
    if issued.instruction is not tensor_reduce or a.op.name != alu.ADD.name or a.negate:
        return False
    return len(a.axis) == len(a.data.shape) - 1


def squares(issued: Issued) -> bool:
    """Whether it is a `tensor_tensor` that multiplies a tile by itself."""
    a = issued.arguments
    return issued.instruction is tensor_tensor and a.op.name == alu.MULTIPLY.name and a.data1 == a.data2


def _elsewhere(issued: Issued, target: Target) -> Iterator[Form]:
    a = issued.arguments
    if "engine" in issued.instruction.operands:
        for engine in issued.instruction.engines:
            if engine is not issued.engine:
                moved = Issued(issued.instruction, a._replace(engine=engine), issued.location, engine)
                yield Form(moved, f"engine=nisa.engine.{engine.name} for {issued.instruction.label}")
    if squares(issued):
        yield Form(
            made(activation, Engine.scalar, issued, dst=a.dst, op=alu.SQUARE, data=a.data1),
            "nisa.activation(op=nl.square) instead of nisa.tensor_tensor",
        )
    elif adds_up(issued):
        summed = made(
            activation,
            Engine.scalar,
            issued,
            dst=a.data,
            op=functions.COPY,
            data=a.data,
            reduce_op=alu.ADD,
            reduce_res=_column(a.dst),
            reduce_cmd=reduce_cmd.reset_reduce,
        )
        yield Form(summed, f"nisa.activation(op=nl.copy, {SUM}) instead of nisa.tensor_reduce")
    elif issued.instruction is activation and a.reduce_cmd is reduce_cmd.idle:
        yield from _on_vector(issued)


def _on_vector(issued: Issued) -> Iterator[Form]:
    """What Vector has for an activation."""
    a = issued.arguments
    plain = not isinstance(a.scale, View) and a.scale == 1 and a.bias is None
    if a.op.name == functions.COPY.name and plain:
        yield Form(
            made(tensor_copy, Engine.vector, issued, dst=a.dst, src=a.data, engine=Engine.vector),
            "nisa.tensor_copy(engine=nisa.engine.vector) instead of nisa.activation",
        )
    elif a.op.name == functions.COPY.name:
        given = {"op0": alu.MULTIPLY, "operand0": a.scale}
        if a.bias is not None:
            given |= {"op1": alu.ADD, "operand1": a.bias}
        yield Form(
            made(tensor_scalar, Engine.vector, issued, dst=a.dst, data=a.data, engine=Engine.vector, **given),
            "nisa.tensor_scalar, with scale and bias as operands, instead of nisa.activation",
        )
    elif a.op.name == alu.RELU.name and plain:
        yield Form(
            made(tensor_scalar, Engine.vector, issued, dst=a.dst, data=a.data, op0=alu.MAXIMUM, operand0=0.0),
            "nisa.tensor_scalar(op0=nl.maximum, operand0=0.0) instead of nisa.activation",
        )
    elif a.op.name == alu.SQUARE.name and plain:
        yield Form(
            made(tensor_tensor, Engine.vector, issued, dst=a.dst, data1=a.data, data2=a.data, op=alu.MULTIPLY),
            "nisa.tensor_tensor(op=nl.multiply) instead of nisa.activation",
        )


def _column(view: View) -> View:
    """A result of one element in each partition as `(P, 1)`."""
    return view._replace(shape=(view.shape[0], 1), strides=(view.strides[0], 1))
