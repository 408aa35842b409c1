"""What stands around kernels: their launches, and functions of the first NKI that ran them."""

from __future__ import annotations

from typing import Any

import libcst as cst
import numpy as np

from nki.tools.migrate.names import Names
from nki.tools.migrate.nodes import all_of
from nki.tools.migrate.operators import today_of

_SETTINGS = ("compile_config", "specialization_config", "api")
"""Keywords of ``nki.jit`` that mean something today."""


class Host(cst.CSTTransformer):
    """Rewrites calls of kernels: ``kernel[2, 4](x)`` becomes ``kernel(x, grid=(2, 4))``.

    Args:
        grids: the grids that kernels were called with, by name.
        kernels: names of functions that are kernels by a decorator.
    """

    def __init__(self, grids: dict[str, tuple[Any, ...]], names: Names, kernels: frozenset[str]) -> None:
        self._kernels = kernels
        self._grids = grids
        self._names = names
        self._decorates = 0
        self.needs: set[str] = set()

    def visit_Decorator(self, node: cst.Decorator) -> None:
        self._decorates += 1

    def leave_Decorator(self, original_node: cst.Decorator, updated_node: cst.Decorator) -> cst.Decorator:
        self._decorates -= 1
        return updated_node

    def leave_Annotation(self, original_node: cst.Annotation, updated_node: cst.Annotation) -> cst.Annotation:
        """``nki.tensor`` in annotations is ``nl.ndarray``."""
        if self._names.canonical(original_node.annotation) != "nki.tensor":
            return updated_node
        return updated_node.with_changes(annotation=cst.parse_expression(f"{self._language()}.ndarray"))

    def _language(self) -> str:
        """What the file calls ``nki.language``."""
        alias = next((n for n, d in self._names.bound.items() if d.endswith("nki.language")), "")
        if not alias:
            self.needs.add("nl")
        return alias or "nl"

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        name = self._names.canonical(original_node)
        if name in ("nki.trace", "nki.baremetal"):
            return updated_node.with_changes(attr=cst.Name("jit"))
        return updated_node

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> Any:
        """``simulate_kernel = nki.simulate_kernel`` and ``alloc = ncc.sbuf.alloc`` are no statements any more."""
        name = self._names.canonical(original_node.value)
        if name == "nki.simulate_kernel" or name.startswith(("ncc.sbuf.", "ncc.psum.")):
            return cst.RemoveFromParent()
        return updated_node

    def _simulated(self, call: cst.Call) -> cst.BaseExpression:
        """``simulate_kernel(kernel[2], x)`` becomes ``nki.simulate(kernel)(x, grid=(2,))``."""
        alias = next(
            (n for n, dotted in self._names.bound.items() if dotted in ("neuronxcc.nki", "nki.beta1", "nki")), "nki"
        )
        kernel, *rest = call.args
        inner = cst.Call(kernel.value, rest)
        launched = self._launched(inner)
        simulate = cst.Call(cst.parse_expression(f"{alias}.simulate"), [cst.Arg(launched.func)])
        return launched.with_changes(func=simulate)

    def _made(self, call: cst.Call) -> cst.BaseExpression:
        """``nki.jit(kernel, mode="simulation")``: the kernel itself, or one of a function."""
        plain = [arg for arg in call.args if arg.keyword is None or arg.keyword.value in _SETTINGS]
        if not plain:
            return call.with_changes(args=[])
        if isinstance(plain[0].value, cst.Name) and plain[0].value.value in self._kernels:
            return plain[0].value
        last = plain[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return call.with_changes(args=[*plain[:-1], last])

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        name = self._names.canonical(original_node.func)
        if name == "nki.simulate_kernel" and updated_node.args:
            return self._simulated(updated_node)
        if name in ("nki.jit", "nki.trace", "nki.baremetal") and not self._decorates:
            return self._made(updated_node)
        function = original_node.func.value if isinstance(original_node.func, cst.Subscript) else original_node.func
        if isinstance(function, cst.Name) and function.value in self._kernels:
            updated_node = updated_node.with_changes(args=[self._operator(arg) for arg in updated_node.args])
        return self._launched(updated_node)

    def _operator(self, arg: cst.Arg) -> cst.Arg:
        """``np.add`` as the argument of a kernel is an operator of ``nki.language`` today."""
        package, _, name = self._names.canonical(arg.value).partition(".")
        if package != "np" or today_of(getattr(np, name, None)) is None:
            return arg
        operator = today_of(getattr(np, name)).__name__
        return arg.with_changes(value=cst.parse_expression(f"{self._language()}.{operator}"))

    def _launched(self, updated_node: cst.Call) -> cst.Call:
        function = updated_node.func
        if not isinstance(function, cst.Subscript) or not isinstance(function.value, cst.Name):
            return updated_node
        grid = self._grids.get(function.value.value)
        if grid is None:
            return updated_node
        cores = 1
        for axis in grid:
            cores *= axis.cores
        elements = [each.slice.value for each in function.slice if isinstance(each.slice, cst.Index)]
        sizes = [self._size(each) for each in elements]
        if None in sizes:
            return updated_node
        plain: Any = function.value
        if cores > 1:
            plain = cst.parse_expression(f"{function.value.value}[{cores}]")
        if all(axis.serial == 1 and axis.cores > 1 for axis in grid):
            return updated_node.with_changes(func=plain)
        inner = ", ".join(str(size) for size in sizes)
        value = cst.parse_expression(f"({inner}{',' if len(sizes) == 1 else ''})")
        equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
        args = [*updated_node.args]
        if args:
            args[-1] = args[-1].with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
        return updated_node.with_changes(func=plain, args=[*args, cst.Arg(value, cst.Name("grid"), equal)])

    def _size(self, node: cst.BaseExpression) -> str | None:
        """How many programs an axis has, as text."""
        code = cst.Module([]).code_for_node
        if isinstance(node, cst.Call):
            name = self._names.canonical(node.func)
            if name == "nl.nc":
                return code(node.args[0].value)
            if name == "nl.spmd_dim" and len(node.args) == 2:
                parts = [self._size(arg.value) for arg in node.args]
                return None if None in parts else f"{parts[0]} * {parts[1]}"
        return code(node)


def decorated(module: cst.Module, names: Names) -> frozenset[str]:
    """The functions that decorators make kernels of."""
    found: set[str] = set()
    for node in all_of(module, cst.FunctionDef):
        inner = [each.decorator for each in node.decorators]
        functions = [each.func if isinstance(each, cst.Call) else each for each in inner]
        if any(names.canonical(each).startswith("nki.") for each in functions):
            found.add(node.name.value)
    return frozenset(found)
