"""A function of JAX as a flat list of equations: functions that it calls are part of it, loops and branches are not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np

from nki.core.source import Location
from nki.interop.jax.user_location import is_of_jax, site_of

_CALLS: Mapping[str, str] = {
    "jit": "jaxpr",
    "remat2": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
"""Equations that do nothing but call a function, and the parameter that is the function."""


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """An argument, a constant, or a result of one equation; two are the same if they are the same object."""

    aval: Any


@dataclass(frozen=True, slots=True, eq=False)
class Equation:
    """One operation of JAX.

    Attributes:
        name: of its primitive.
        kind: what it does but for its inputs; equal kinds do the same for inputs of equal types. None if unknown.
        run: takes its inputs and returns a list of its outputs.
        effects: whether it does something beside its outputs.
        location: the user's line.
    """

    name: str
    kind: Any
    run: Callable[..., list[Any]]
    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
    effects: bool
    location: Location


@dataclass(frozen=True, slots=True)
class Equations:
    """A function: its equations in order.

    Attributes:
        constants: variables whose values are known.
    """

    arguments: tuple[Variable, ...]
    equations: list[Equation]
    results: tuple[Variable, ...]
    constants: dict[Variable, Any]

    def function(
        self, equations: Sequence[Equation], inputs: Sequence[Variable], outputs: Sequence[Variable]
    ) -> Callable[..., list[Any]]:
        """Some equations as a function of arrays; random keys are their data outside of it."""

        def run(*arrays: Any) -> list[Any]:
            made = {**self.constants}
            made |= {variable: _key(array, variable) for variable, array in zip(inputs, arrays, strict=True)}
            for equation in equations:
                found = equation.run(*(made[variable] for variable in equation.inputs))
                made.update(zip(equation.outputs, found, strict=True))
            return [_data(made[variable], variable) for variable in outputs]

        return run


def equations_of(closed: Any) -> Equations:
    """What a function that JAX traced does; what nobody needs is left out.

    Args:
        closed: its `jax.extend.core.ClosedJaxpr`.
    """
    maker = _Maker()
    arguments = tuple(Variable(aval) for aval in closed.in_avals)
    results = tuple(maker.body(closed.jaxpr, closed.consts, arguments, None))
    return Equations(arguments, _needed(maker.made, results), results, maker.constants)


def shape_of(variable: Variable, sharding: Any = None) -> jax.ShapeDtypeStruct:
    """Shape and dtype of a variable's array, which lies as `sharding` says; of a random key's, those of its data."""
    aval = variable.aval
    if not _is_key(variable):
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type, sharding=sharding)
    return jax.ShapeDtypeStruct((*aval.shape, *aval.dtype._impl.key_shape), np.uint32)


def _needed(equations: Sequence[Equation], results: Sequence[Variable]) -> list[Equation]:
    wanted, kept = set(results), []
    for equation in reversed(equations):
        if equation.effects or wanted.intersection(equation.outputs):
            wanted.update(equation.inputs)
            kept.append(equation)
    return kept[::-1]


class _Maker:
    """Equations made so far. `caller` is the call around a function of JAX's own, whose line is the user's."""

    def __init__(self) -> None:
        self.made: list[Equation] = []
        self.constants: dict[Variable, Any] = {}

    def body(self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Variable], caller: Any) -> list[Variable]:
        made: dict[Any, Variable] = dict(zip(jaxpr.invars, arguments, strict=True))
        made |= {var: self.constant(value, var.aval) for var, value in zip(jaxpr.constvars, consts, strict=True)}

        def read(atom: Any) -> Variable:
            return self.constant(atom.val, atom.aval) if isinstance(atom, jex.Literal) else made[atom]

        for equation in jaxpr.eqns:
            traceback = equation.source_info.traceback if caller is None else caller
            called = equation.params.get(_CALLS.get(equation.primitive.name, ""))
            if called is None:
                found = self.equation(equation, made, traceback, jaxpr.debug_info)
            else:
                found = self.called(called, [read(atom) for atom in equation.invars], traceback)
            made.update(zip(equation.outvars, found, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def called(self, function: Any, arguments: Sequence[Variable], traceback: Any) -> list[Variable]:
        jaxpr, consts = (function.jaxpr, function.consts) if isinstance(function, jex.ClosedJaxpr) else (function, ())
        # JAX traces its own functions once: their equations have the line of whoever called them first.
        return self.body(jaxpr, consts, arguments, traceback if is_of_jax(jaxpr.debug_info.func_filename) else None)

    def equation(self, equation: Any, made: Mapping[Any, Variable], traceback: Any, about: Any) -> list[Variable]:
        moved = equation.replace(source_info=equation.source_info.replace(traceback=traceback))
        inputs = list(dict.fromkeys(var for var in equation.invars if not isinstance(var, jex.Literal)))
        about = about.with_unknown_names()
        jaxpr = jex.Jaxpr((), inputs, equation.outvars, [moved], equation.effects, about)
        outputs = tuple(Variable(var.aval) for var in equation.outvars)
        sources = tuple(made[var] for var in inputs)
        run = jex.jaxpr_as_fun(jex.ClosedJaxpr(jaxpr, ()))
        effects, where = bool(equation.effects), site_of(traceback)
        self.made.append(Equation(equation.primitive.name, _kind(equation), run, sources, outputs, effects, where))
        return list(outputs)

    def constant(self, value: Any, aval: Any) -> Variable:
        made = Variable(aval)
        self.constants[made] = value
        return made


def _kind(equation: Any) -> Any:
    types = tuple(str(var) if isinstance(var, jex.Literal) else str(var.aval) for var in equation.invars)
    kind = (equation.primitive, tuple(sorted(equation.params.items())), types)
    try:
        hash(kind)
    except TypeError:  # a parameter is an array, or something else that cannot be compared
        return None
    return kind


def _is_key(variable: Variable) -> bool:
    return bool(jax.dtypes.issubdtype(variable.aval.dtype, jax.dtypes.prng_key))


def _key(array: Any, variable: Variable) -> Any:
    return jax.random.wrap_key_data(array, impl=variable.aval.dtype._impl) if _is_key(variable) else array


def _data(value: Any, variable: Variable) -> Any:
    return jax.random.key_data(value) if _is_key(variable) else value
