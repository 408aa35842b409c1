"""Tensors and registers have no values while a kernel is traced: Python code that asks for them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from nki.frontend.check.inspection import CheckedFunction, Found, likely_mistake, text
from nki.frontend.check.scopes import Scope
from nki.frontend.check.value_kinds import REGISTERS, TENSORS, Kind, returned_by
from nki.spec.instruction import Instruction

_LIBRARIES = frozenset({"jax", "math", "numpy", "scipy", "torch"})
_SHAPES = frozenset({"iterable", "ndim", "shape", "size"})  # these only look at the shape
_CONVERSIONS = (bool, float, int, range)
_FUNCTIONS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Mod: "mod",
    ast.Pow: "power",
    ast.MatMult: "matmul",
    ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor",
    ast.LShift: "left_shift",
    ast.RShift: "right_shift",
}
_RULE = "values are computed when the kernel runs, after its Python has"


def host_functions(body: CheckedFunction) -> Iterator[Found]:
    """Functions of NumPy and other libraries of the host, called with a tensor."""
    for node, scope in body.nodes():
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr in _SHAPES:
            continue
        values = [*node.args, *(word.value for word in node.keywords)]
        given = next((value for value in values if body.kinds.of(value, scope) in TENSORS), None)
        if given is None or body.names.library(node.func, scope) not in _LIBRARIES:
            continue
        yield likely_mistake(
            "tensor.numpy",
            node,
            f"{text(node.func)} is called with tensor {text(given)}",
            rule=f"functions of the host cannot compute with tensors of a kernel: {_RULE}",
            source="nki/get-started/nki-language-guide.rst, Tensor Values",
            fix="compute it with nki.language or nki.isa",
        )


def assignments(body: CheckedFunction) -> Iterator[Found]:
    """``tensor[...] = value`` with values that cannot be assigned, and ``tensor[...] += value``."""
    for node, scope in body.nodes():
        match node:
            case ast.Assign(targets, value) if _is_no_value(value, scope, body):
                parts = [target for target in targets if isinstance(target, ast.Subscript)]
                yield from (_assigned(part, value) for part in parts if body.kinds.of(part.value, scope) in TENSORS)
            case ast.AugAssign(ast.Subscript(base) as target) if body.kinds.of(base, scope) in TENSORS:
                yield _changed(target, node, scope, body)


def _changed(target: ast.Subscript, node: ast.AugAssign, scope: Scope, body: CheckedFunction) -> Found:
    argument = body.kinds.of(target.value, scope) is Kind.argument
    read = f"nl.load({text(target)})" if argument else text(target)
    if isinstance(node.op, ast.Div | ast.FloorDiv):  # no engine divides
        product = f"nl.multiply({read}, {_inverse(node.value, scope, body)})"
        computed = product if isinstance(node.op, ast.Div) else f"nl.floor({product})"
    else:
        computed = f"nl.{_FUNCTIONS[type(node.op)]}({read}, {text(node.value)})"
    return likely_mistake(
        "tensor.arithmetic",
        target,
        f"{text(target)} is changed by an operator of Python",
        rule="functions of nki.language and instructions compute with tensors",
        fix=f"write {text(target)} = {computed}",
    )


def _inverse(value: ast.expr, scope: Scope, body: CheckedFunction) -> str:
    if body.kinds.of(value, scope) in TENSORS:
        return f"nl.reciprocal({text(value)})"
    return f"1 / {text(value)}" if isinstance(value, ast.Constant | ast.Name) else f"1 / ({text(value)})"


def _is_no_value(value: ast.expr, scope: Scope, body: CheckedFunction) -> bool:
    """Whether it is certainly no tensor and no number."""
    match value:
        case ast.Call(function):
            return isinstance(body.names.value(function, scope), Instruction)
        case ast.Constant(constant):
            return constant is None or isinstance(constant, str)
    return isinstance(value, ast.List | ast.Tuple | ast.Dict)


def _assigned(target: ast.Subscript, value: ast.expr) -> Found:
    return likely_mistake(
        "tensor.assignment",
        target,
        f"{text(target)} is assigned {text(value)}",
        rule="tensors and numbers can be assigned to a tensor; instructions return neither, and write into dst",
        source="nki/migration/index.rst, All ISA functions require a destination parameter",
        fix=f"pass dst={text(target)} to the instruction that computes the value",
    )


def truth(body: CheckedFunction) -> Iterator[Found]:
    """Conditions that are tensors, or registers other than those of a ``while``."""
    for node, scope in body.nodes():
        for tested in _conditions(node):
            kind = body.kinds.of(tested, scope)
            if kind is Kind.tensor:
                yield _decides("tensor.truth", tested, "tensor", "choose between values with nl.where or a mask")
            elif kind in REGISTERS and not isinstance(node, ast.While):
                yield _decides("register.python-value", tested, "register", "loop with nl.while_loop, or use a mask")


def _decides(code: str, node: ast.AST, what: str, fix: str) -> Found:
    return likely_mistake(
        code,
        node,
        f"{what} {text(node)} decides what Python does next",
        rule=f"Python decides while the kernel is traced: {_RULE}",
        source="nki/get-started/nki-language-guide.rst, Control Flow",
        fix=fix,
    )


def register_values(body: CheckedFunction) -> Iterator[Found]:
    """Registers that are compared or converted as if they were numbers."""
    for node, scope in body.nodes():
        match node:
            case ast.Compare(left, operators, rights):
                yield from _comparisons(node, operators, [left, *rights], scope, body)
            case ast.Call(ast.Name() as function, [*values], []) if body.names.value(function, scope) in _CONVERSIONS:
                for value in values:
                    if body.kinds.of(value, scope) in REGISTERS:
                        yield _no_number(node, value, "keep the computation in registers or tensors")


def _comparisons(
    node: ast.Compare, operators: list[ast.cmpop], operands: list[ast.expr], scope: Scope, body: CheckedFunction
) -> Iterator[Found]:
    for operator, left, right in zip(operators, operands, operands[1:], strict=False):
        kinds = {body.kinds.of(left, scope), body.kinds.of(right, scope)}
        nothing = any(isinstance(side, ast.Constant) and side.value is None for side in (left, right))
        identity = isinstance(operator, ast.Is | ast.IsNot) and kinds & set(REGISTERS) and not nothing
        equality = isinstance(operator, ast.Eq | ast.NotEq) and Kind.register in kinds and Kind.scalar not in kinds
        if identity or (equality and not nothing):
            asked = left if body.kinds.of(left, scope) in REGISTERS else right
            yield _no_number(node, asked, "load the value with nisa.scalar_load: scalars can be compared with ==")


def _no_number(node: ast.AST, register: ast.expr, fix: str) -> Found:
    return likely_mistake(
        "register.python-value",
        node,
        f"{text(node)} asks for the value of register {text(register)}",
        rule=f"a register is no Python number: {_RULE}",
        source="nki/api/nki/isa/__init__.py VirtualRegister",
        fix=fix,
    )


def unused_results(body: CheckedFunction) -> Iterator[Found]:
    """Functions and views whose result nobody takes."""
    for node, scope in body.nodes():
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
            continue
        call = node.value
        view = body.kinds.is_view_call(call, scope)
        if view or returned_by(body.names.value(call.func, scope)) == "NkiTensor":
            yield likely_mistake(
                "tensor.unused",
                call,
                f"{text(call.func)} makes a new {'view' if view else 'tensor'}, which is not used",
                rule="views and functions of nki.language change nothing: they return a tensor",
                source="nki/get-started/nki-language-guide.rst, Tensor Values",
                fix="bind the result to a name, or remove the call",
            )


def _conditions(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.If(tested) | ast.While(tested) | ast.IfExp(tested) | ast.Assert(tested):
            return _parts(tested)
        case ast.comprehension(_, _, tests):
            return [part for test in tests for part in _parts(test)]
    return []


def _parts(tested: ast.expr) -> list[ast.expr]:
    """``a and not b`` tests `a` and `b`."""
    match tested:
        case ast.BoolOp(_, values):
            return [part for value in values for part in _parts(value)]
        case ast.UnaryOp(ast.Not(), operand):
            return _parts(operand)
    return [tested]
