"""Which expressions of a function are certainly tensors, registers or scalars of the device."""

from __future__ import annotations

import ast
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from nki.core.nki_tensor import NkiTensor
from nki.frontend.check.name_resolution import Names, is_ours
from nki.frontend.check.scopes import Binding, Scope
from nki.language.loops import dynamic_range, fori_loop


class Kind(enum.Enum):
    """What is known about a value.

    argument: a tensor if the argument is given, None otherwise; tensor: the result of a function or a view of one;
    register, scalar: a value on the device, without and with arithmetic.
    """

    other = "other"
    argument = "argument"
    tensor = "tensor"
    register = "register"
    scalar = "scalar"


TENSORS = (Kind.tensor, Kind.argument)
REGISTERS = (Kind.register, Kind.scalar)

# By the annotation of what our functions return.
_RESULTS = {"NkiTensor": Kind.tensor, "VirtualRegister": Kind.register, "NkiScalar": Kind.scalar}
_VIEWS = frozenset(
    name
    for name, method in vars(NkiTensor).items()
    if isinstance(method, FunctionType) and method.__annotations__.get("return") == "NkiTensor"
)
_TELLING = _VIEWS | {"shape", "dtype", "buffer", "get_pattern", "strides"}


@dataclass(frozen=True, slots=True)
class Kinds:
    """Kinds of the expressions of one function.

    Attributes:
        names: what its names stand for.
        tensors: its parameters that are tensors.
    """

    names: Names
    tensors: frozenset[str]
    _known: dict[tuple[int, str], Kind] = field(default_factory=dict)

    def of(self, node: ast.AST, scope: Scope) -> Kind:
        """The kind of an expression; `other` unless it is certain."""
        match node:
            case ast.Name(name):
                return self._of_name(name, scope)
            case ast.Subscript(value):
                kind = self.of(value, scope)
                return kind if kind in TENSORS else Kind.other
            case ast.NamedExpr(_, value):
                return self.of(value, scope)
            case ast.IfExp(_, one, other):
                return self._common([self.of(one, scope), self.of(other, scope)])
            case ast.Call(function):
                return self._of_call(function, scope)
            case ast.BinOp(left, _, right):
                return self._computed([left, right], scope)
            case ast.Compare(left, operators, rights):
                plain = any(isinstance(each, ast.Is | ast.IsNot | ast.In | ast.NotIn) for each in operators)
                return Kind.other if plain else self._computed([left, *rights], scope)
        return Kind.other

    def is_view_call(self, node: ast.Call, scope: Scope) -> bool:
        """Whether it makes a view of a tensor."""
        function = node.func
        return (
            isinstance(function, ast.Attribute) and function.attr in _VIEWS and self._base(function, scope) in TENSORS
        )

    def is_device_loop(self, node: ast.AST, scope: Scope) -> bool:
        """Whether it is ``for ... in nl.dynamic_range(...)``."""
        if not isinstance(node, ast.For) or not isinstance(node.iter, ast.Call):
            return False
        return self.names.value(node.iter.func, scope) is dynamic_range

    def is_loop_body(self, function: Scope) -> bool:
        """Whether a nested function is passed to `nl.fori_loop` by name, in the scope that defines it."""
        around = function.parent
        if around is None or not isinstance(function.owner, ast.FunctionDef):
            return False
        return any(
            isinstance(node, ast.Call)
            and self.names.value(node.func, around) is fori_loop
            and any(
                isinstance(value, ast.Name) and value.id == function.owner.name
                for value in [*node.args[2:3], *(word.value for word in node.keywords if word.arg == "body_fun")]
            )
            for node in around.nodes
        )

    def _of_name(self, name: str, scope: Scope) -> Kind:
        home = scope.home(name)
        if home is None or not home.is_inside(self.names.source.scope):
            return Kind.other
        key = (id(home), name)
        if key not in self._known:
            self._known[key] = Kind.other  # a name that is bound to itself
            self._known[key] = self._common([self._bound(name, binding, home) for binding in home.bindings[name]])
        return self._known[key]

    def _bound(self, name: str, binding: Binding, home: Scope) -> Kind:
        if isinstance(binding.node, ast.arg):
            if home is self.names.source.scope:
                return Kind.argument if name in self.tensors else Kind.other
            return Kind.scalar if home.parameters()[0] is binding.node and self.is_loop_body(home) else Kind.other
        if self.is_device_loop(binding.node, home):
            return Kind.scalar
        return self.of(binding.value, home) if binding.value is not None else Kind.other

    def _of_call(self, function: ast.expr, scope: Scope) -> Kind:
        if isinstance(function, ast.Attribute) and function.attr in _VIEWS:
            kind = self._base(function, scope)
            if kind in TENSORS:
                return kind
        return _RESULTS.get(returned_by(self.names.value(function, scope)), Kind.other)

    def _base(self, function: ast.Attribute, scope: Scope) -> Kind:
        return self.of(function.value, scope)

    def _computed(self, operands: list[ast.expr], scope: Scope) -> Kind:
        return Kind.scalar if any(self.of(each, scope) is Kind.scalar for each in operands) else Kind.other

    def _common(self, kinds: list[Kind]) -> Kind:
        if len(set(kinds)) == 1:
            return kinds[0]
        return Kind.argument if set(kinds) == set(TENSORS) else Kind.other


def returned_by(value: Any) -> str:
    """The annotation of what one of our functions returns; "" for everything else."""
    if not isinstance(value, FunctionType) or not is_ours(value):
        return ""
    return str(value.__annotations__.get("return", ""))


def tensor_parameters(names: Names) -> frozenset[str]:
    """Parameters of a kernel that it treats as tensors, and does not bind again."""
    scope = names.source.scope
    once = {p.arg for p in scope.parameters() if len(scope.bindings[p.arg]) == 1}
    told = {
        node.value.id
        for inner in scope.within()
        for node in inner.nodes
        if (isinstance(node, ast.Attribute) and node.attr in _TELLING)
        or (isinstance(node, ast.Subscript) and _is_view(node))
        if isinstance(node.value, ast.Name) and inner.home(node.value.id) is scope
    }
    return frozenset(once & told)


def _is_view(node: ast.Subscript) -> bool:
    """Whether only a tensor takes this index: lists and dicts have no ``[...]`` and no ``[a:b, c]``."""
    keys = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
    return any(isinstance(key, ast.Slice) for key in keys) or any(
        isinstance(key, ast.Constant) and key.value is Ellipsis for key in [node.slice, *keys]
    )


def passed_tensors(call: ast.Call, callee: FunctionType, kinds: Kinds, scope: Scope) -> frozenset[str]:
    """Parameters of a called function that get a tensor."""
    parameters = callee.__code__.co_varnames[: callee.__code__.co_argcount]
    plain = call.args if not any(isinstance(value, ast.Starred) for value in call.args) else []
    given: Mapping[str, ast.expr] = {
        **dict(zip(parameters, plain, strict=False)),
        **{word.arg: word.value for word in call.keywords if word.arg is not None},
    }
    return frozenset(name for name, value in given.items() if kinds.of(value, scope) in TENSORS)
