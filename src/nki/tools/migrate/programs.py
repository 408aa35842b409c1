"""Grids of programs: today they are a loop in the kernel, but for an axis that is two cores."""

from __future__ import annotations

from typing import Any

import libcst as cst

from nki.tools.migrate.names import Names
from nki.tools.migrate.problems import Unmigrated


class Programs:
    """The programs of one kernel.

    Args:
        grid: the axes that the kernel was called with.
        used: names that the file uses.
    """

    def __init__(self, names: Names, grid: tuple[Any, ...], used: set[str]) -> None:
        self._names = names
        self._grid = grid
        self._cores = [at for at, axis in enumerate(grid) if axis.cores > 1]
        self._serial = [at for at, axis in enumerate(grid) if axis.serial > 1 or axis.cores == 1]
        self._used = used

    @property
    def looped_axes(self) -> list[int]:
        return self._serial

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
        """The kernel with loops over its programs."""
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
        grid = cst.Param(cst.Name("grid"))
        if params.default_params if hasattr(params, "default_params") else any(p.default for p in params.params):
            sizes = ", ".join(str(axis.size) for axis in self._grid)
            grid = cst.Param(
                cst.Name("grid"), default=cst.parse_expression(f"({sizes}{',' if len(self._grid) == 1 else ''})")
            )
        changed = params.with_changes(params=[*params.params, grid])
        return function.with_changes(
            params=changed, body=function.body.with_changes(body=[*head, *shared, *inner, *last])
        )


def _is_return(statement: Any) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Return)


def _is_shared(statement: Any, module: cst.Module) -> bool:
    text = module.code_for_node(statement)
    return isinstance(statement, cst.SimpleStatementLine) and "ndarray(" in text and "shared_hbm" in text
