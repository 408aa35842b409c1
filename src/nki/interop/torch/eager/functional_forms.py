"""Which operator computes the same as one that writes: ``exp.out`` and ``exp_`` are ``exp`` and a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Plain:
    """An operator that only reads, and how the arguments of the one that was called belong to it.

    Attributes:
        operator: it.
        written: names of the arguments that the one that was called writes to, in the order of the results.
        extra: those of them that `operator` does not have.
        single: whether it has one result.
        names: of the arguments of the one that was called.
    """

    operator: Any
    written: tuple[str, ...]
    extra: frozenset[str]
    single: bool
    names: tuple[str, ...]

    def split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, list[torch.Tensor]]:
        """Arguments of the operator, and the tensors that its results are written to."""
        bound = {**dict(zip(self.names, args, strict=False)), **kwargs}
        given = {name: value for name, value in bound.items() if name not in self.extra}
        return given, [bound[name] for name in self.written]

    @staticmethod
    def returned(targets: Sequence[torch.Tensor]) -> Any:
        """What an operator that writes returns."""
        return targets[0] if len(targets) == 1 else tuple(targets)


@cache  # one for each operator of PyTorch
def plain_of(operator: Any) -> Plain | None:
    """The operator that computes the results; None for views and for what has no such operator."""
    schema = operator._schema
    names = tuple(argument.name for argument in schema.arguments)
    single = len(schema.returns) == 1
    if not all(str(result.type) == "Tensor" for result in schema.returns) or not schema.returns:
        return None
    if not schema.is_mutable:
        views = any(result.alias_info is not None for result in schema.returns)
        return None if views else Plain(operator, (), frozenset(), single, names)
    written = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    if len(written) != len(schema.returns) or any(str(argument.type) != "Tensor" for argument in written):
        return None
    extra = frozenset(argument.name for argument in written if argument.is_out)
    packet = operator._overloadpacket
    if not extra:
        name = packet.__name__
        if not name.endswith("_") or not hasattr(torch.ops.aten, name[:-1]):
            return None
        packet = getattr(torch.ops.aten, name[:-1])
    wanted = [(a.name, str(a.type), a.kwarg_only) for a in schema.arguments if a.name not in extra]
    found = _overload(packet, wanted, len(written))
    return None if found is None else Plain(found, tuple(a.name for a in written), extra, single, names)


def _overload(packet: Any, wanted: list[tuple[str, str, bool]], results: int) -> Any:
    """The overload that takes the same arguments and writes to none."""
    for name in packet.overloads():
        schema = getattr(packet, name)._schema
        arguments = [(a.name, str(a.type), a.kwarg_only) for a in schema.arguments]
        alias = any(result.alias_info is not None for result in schema.returns)
        if (
            not schema.is_mutable
            and not alias
            and arguments[: len(wanted)] == wanted
            and len(schema.returns) == results
        ):
            rest = schema.arguments[len(wanted) :]
            if all(argument.has_default_value() for argument in rest):
                return getattr(packet, name)
    return None
