"""Grids of programs: today they are a loop in the kernel, but for an axis that is two cores."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import libcst as cst

from nki.tools.migrate.names import Names
from nki.tools.migrate.nodes import all_of
from nki.tools.migrate.problems import Unmigrated


class Programs:
    """The programs of one kernel.

    Args:
        grid: the axes that the kernel was called with.
        passed: for functions of the file that are parts of kernels, what they are told of the program.
        own: what this function is told, if it is one of them; None for a kernel.
    """

    def __init__(
        self,
        names: Names,
        grid: tuple[Any, ...],
        passed: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        own: tuple[str, ...] | None = None,
    ) -> None:
        self._names = names
        self._grid = grid
        self._passed = passed
        self._own = own
        self._cores = [at for at, axis in enumerate(grid) if axis.cores > 1]
        self._serial = [at for at, axis in enumerate(grid) if axis.serial > 1 or axis.cores == 1]

    def passed(self, call: cst.Call) -> tuple[str, ...]:
        """What a call of a part of the kernel is told of the program."""
        return self._passed.get(call.func.value, ()) if isinstance(call.func, cst.Name) else ()

    def text(self, name: str, call: cst.Call) -> str | None:
        """What ``nl.program_id(axis)`` and the like are in the new kernel; None to leave it."""
        if not self._serial:
            return None
        if name == "program_ndim":
            return str(len(self._grid))
        if len(call.args) != 1 or not isinstance(call.args[0].value, cst.Integer):
            raise Unmigrated(f"nl.{name} of an axis that is no number")
        axis = int(call.args[0].value.value)
        if name == "num_programs":
            return f"grid[{axis}]"
        function = self._text_of(call.func)
        if axis in self._cores:
            cores = self._grid[axis].cores
            if axis not in self._serial:
                return f"{function}(0)"
            if self._grid[axis].cores_outer:
                return f"({function}(0) * (grid[{axis}] // {cores}) + program_{axis})"
            return f"(program_{axis} * {cores} + {function}(0))"
        return f"program_{axis}"

    def _text_of(self, node: cst.BaseExpression) -> str:
        return cst.Module([]).code_for_node(node)

    def looped(self, function: cst.FunctionDef, module: cst.Module) -> cst.FunctionDef:
        """The kernel with loops over its programs; a part of it with parameters for what it is told of them."""
        if self._own is not None:
            return _with_parameters(function, self._own)
        if not self._serial or not isinstance(function.body, cst.IndentedBlock):
            return function
        body = list(function.body.body)
        first = next((at for at, each in enumerate(body) if "program_" in module.code_for_node(each)), len(body))
        head, rest = body[:first], body[first:]
        last = [rest.pop()] if rest and _is_return(rest[-1]) else []
        shared = [each for each in rest if _is_shared(each, module)]
        inner: Any = [each for each in rest if each not in shared]
        for axis in reversed(self._serial):
            cores = self._grid[axis].cores
            size = f"grid[{axis}]" if cores == 1 else f"grid[{axis}] // {cores}"
            loop = cst.parse_statement(f"for program_{axis} in range({size}):\n{module.default_indent}pass")
            assert isinstance(loop, cst.For)
            inner = [loop.with_changes(body=cst.IndentedBlock(inner))]
        params = function.params
        default = str(tuple(axis.size for axis in self._grid)) if any(p.default for p in params.params) else ""
        grid = _parameter("grid", default)
        changed = params.with_changes(params=[*params.params, grid])
        return function.with_changes(
            params=changed, body=function.body.with_changes(body=[*head, *shared, *inner, *last])
        )


def _parameter(name: str, default: str) -> cst.Param:
    """A parameter, with a default unless that is ""."""
    if not default:
        return cst.Param(cst.Name(name))
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return cst.Param(cst.Name(name), default=cst.parse_expression(default), equal=equal)


def _with_parameters(function: cst.FunctionDef, names: tuple[str, ...]) -> cst.FunctionDef:
    """A function with more parameters, which are given by their names."""
    if not names:
        return function
    params = function.params
    default = "None" if any(each.default for each in params.params) else ""
    more = [_parameter(name, default) for name in names]
    return function.with_changes(params=params.with_changes(params=[*params.params, *more]))


def parts_of_kernels(
    module: cst.Module, names: Names, grids: Mapping[str, tuple[Any, ...]]
) -> dict[str, tuple[tuple[Any, ...], tuple[str, ...]]]:
    """The functions that kernels call: the grid of a kernel that does, and what they have to be told of its program.

    Args:
        grids: those that kernels were called with.
    """
    functions = {each.name.value: each for each in all_of(module, cst.FunctionDef)}
    calls = {name: all_of(each.body, cst.Call) for name, each in functions.items()}
    called = {
        name: {each.func.value for each in found if isinstance(each.func, cst.Name)} & functions.keys()
        for name, found in calls.items()
    }
    grid_of: dict[str, tuple[Any, ...]] = {}
    for kernel, grid in grids.items():
        waiting = [kernel]
        while waiting:
            new = called.get(waiting.pop(), set()) - grid_of.keys() - grids.keys()
            grid_of |= dict.fromkeys(new, grid)
            waiting += new
    told = {name: _asked(calls[name], names, grid) for name, grid in grid_of.items()}
    for _ in told:
        told = {name: own.union(*(told[each] for each in called[name] if each in told)) for name, own in told.items()}
    return {name: (grid, tuple(sorted(told[name]))) for name, grid in grid_of.items()}


def _asked(calls: list[cst.Call], names: Names, grid: tuple[Any, ...]) -> set[str]:
    """What a function asks about the program that it runs in."""
    found = set()
    for call in calls:
        name = names.canonical(call.func)
        serial = [at for at, axis in enumerate(grid) if axis.serial > 1 or axis.cores == 1]
        if name == "nl.num_programs" and serial:
            found.add("grid")
        if name == "nl.program_id" and len(call.args) == 1 and isinstance(call.args[0].value, cst.Integer):
            axis = int(call.args[0].value.value)
            found |= {f"program_{axis}"} & {f"program_{at}" for at in serial}
            found |= {"grid"} if axis in serial and grid[axis].cores > 1 and grid[axis].cores_outer else set()
    return found


def _is_return(statement: Any) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Return)


def _is_shared(statement: Any, module: cst.Module) -> bool:
    text = module.code_for_node(statement)
    return isinstance(statement, cst.SimpleStatementLine) and "ndarray(" in text and "shared_hbm" in text
