"""Grids of programs: today they are a loop in the kernel, but for an axis that is two cores."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import libcst as cst

from nki.tools.migrate.names import Names
from nki.tools.migrate.nodes import all_of, parts
from nki.tools.migrate.problems import Unmigrated

MEETING = "nki_migrate_meeting"
"""Stands for ``nl.all_reduce`` between the loops over programs, until these are made."""


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

    def reduced_over_cores(self, axes: list[int]) -> bool:
        """Whether a reduction over axes of programs is one over two cores; else it is one over all other programs."""
        if len(axes) == 1 and axes[0] in self._cores and axes[0] not in self._serial:
            return True
        if self._own is not None or sorted(axes) != self._serial or len(axes) != 1 or axes[0] in self._cores:
            raise Unmigrated("nl.all_reduce over some of the programs of a grid, or in a function that kernels call")
        return False

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
        last: list[Any] = []
        while rest and _is_return(rest[-1]):
            last.insert(0, rest.pop())
        if any(_returns(each) for each in rest):
            raise Unmigrated("it returns between other statements, which are in a loop over its programs")
        shared = [each for each in rest if _is_shared(each, module)]
        inner = self._between_meetings([each for each in rest if each not in shared], module)
        params = function.params
        default = str(tuple(axis.size for axis in self._grid)) if any(p.default for p in params.params) else ""
        grid = _parameter("grid", default)
        changed = params.with_changes(params=[*params.params, grid])
        return function.with_changes(
            params=changed, body=function.body.with_changes(body=[*head, *shared, *inner, *last])
        )

    def _between_meetings(self, statements: list[Any], module: cst.Module) -> list[Any]:
        """Loops over programs, which end where all programs meet; what is read behind that is kept by program."""
        at = next((at for at, each in enumerate(statements) if _is_meeting(each)), None)
        if at is None:
            return [self._loop(statements, module)]
        before, after = statements[:at], statements[at + 1 :]
        axis = self._serial[0]
        name, together = _together(statements[at], axis, module)
        used = sorted((_assigned(before) & _read(after)) - {name})
        again = {each: found for each in used if (found := _plain(each, before)) is not None}
        kept = [each for each in used if each not in again]
        lists = [cst.parse_statement(f"{each}_by_program = []") for each in kept]
        appended = [cst.parse_statement(f"{each}_by_program.append({each})") for each in kept]
        taken = [cst.parse_statement(f"{each} = {each}_by_program[program_{axis}]") for each in kept]
        return [
            *lists,
            self._loop([*before, together, *appended], module),
            *self._between_meetings([*again.values(), *taken, *after], module),
        ]

    def _loop(self, statements: list[Any], module: cst.Module) -> Any:
        """Loops over all programs around statements."""
        for axis in reversed(self._serial):
            cores = self._grid[axis].cores
            size = f"grid[{axis}]" if cores == 1 else f"grid[{axis}] // {cores}"
            loop = cst.parse_statement(f"for program_{axis} in range({size}):\n{module.default_indent}pass")
            assert isinstance(loop, cst.For)
            statements = [loop.with_changes(body=cst.IndentedBlock(statements))]
        return statements[0]


def _is_meeting(statement: Any) -> bool:
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    call = small.value if isinstance(small, cst.Assign) else None
    return isinstance(call, cst.Call) and isinstance(call.func, cst.Name) and call.func.value == MEETING


def _together(meeting: Any, axis: int, module: cst.Module) -> tuple[str, Any]:
    """The name of what programs make together, and the statement that adds what one of them has."""
    small = meeting.body[0]
    name = small.targets[0].target.value
    part, op, copy, combine = (module.code_for_node(arg.value) for arg in small.value.args)
    indent = module.default_indent
    text = (
        f"if program_{axis} == 0:\n{indent}{name} = {copy}({part})\n"
        f"else:\n{indent}{combine}(dst={name}, data1={name}, data2={part}, op={op})\n"
    )
    return name, cst.parse_statement(text).with_changes(leading_lines=meeting.leading_lines)


def _plain(name: str, statements: list[Any]) -> Any:
    """The statement that gives a name to a number of the program, which another loop may say again; None for others."""
    if name not in _assigned(statements):
        return None
    lines = [each for each in statements if name in _assigned([each])]
    small = lines[0].body[0] if len(lines) == 1 and isinstance(lines[0], cst.SimpleStatementLine) else None
    if not isinstance(small, cst.Assign) or all_of(small.value, cst.Call) or all_of(small.value, cst.Subscript):
        return None
    return None if _read([small.value]) & _assigned(statements) else cst.SimpleStatementLine([small])


def _assigned(statements: list[Any]) -> set[str]:
    targets = [each.target for statement in statements for each in all_of(statement, cst.AssignTarget)]
    return {
        name.value for target in targets if not isinstance(target, cst.Subscript) for name in all_of(target, cst.Name)
    }


def _read(statements: list[Any]) -> set[str]:
    return {name.value for statement in statements for name in all_of(statement, cst.Name)}


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
    """Whether a statement does nothing but return, also one thing or another."""
    if isinstance(statement, cst.If):
        other = statement.orelse
        inner = [*statement.body.body, *([other] if isinstance(other, cst.If) else other.body.body if other else [])]
        return all(map(_is_return, inner))
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Return)


def _returns(node: cst.CSTNode) -> bool:
    """Whether a statement may return from the function that it is in."""
    if isinstance(node, cst.FunctionDef | cst.Lambda):
        return False
    return isinstance(node, cst.Return) or any(map(_returns, parts(node)))


def _is_shared(statement: Any, module: cst.Module) -> bool:
    text = module.code_for_node(statement)
    return isinstance(statement, cst.SimpleStatementLine) and "ndarray(" in text and "shared_hbm" in text
