"""Which operands may be gathered or scattered with ``.indirect()``, and from which partitions.

Source: the section "Tensor indirection" of each instruction in nki/api/nki/isa/__init__.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nki.core.tensor import FreeIndirection, MemoryRegion, View
from nki.spec.engine import engine as Engine
from nki.spec.rule import Rule
from nki.target.model import Target

_ISA = "nki/api/nki/isa, Tensor indirection"


def no_indirection() -> Rule:
    """For instructions whose documentation does not mention tensor indirection."""
    return Rule(
        "indirect",
        "no operand is a view made by .indirect()",
        lambda a, t: not _any_indirect(a),
        _ISA,
        "gather with nisa.nc_n_gather first, and pass a plain view",
        _made,
        remedy=lambda a, t: _remedy(a, "dst"),
    )


def indirection_rules(dst: str, data: str, engine: Engine) -> list[Rule]:
    """For instructions that gather `data` and scatter to `dst` on targets with tensor indirection."""
    rules = [
        Rule(
            "indirect",
            f"{dst} and {data}, and no other operand, may be views made by .indirect(), where the target has them",
            lambda a, t: all(
                not _index(view) or (name in (dst, data) and t.has("tensor_indirection")) for name, view in _views(a)
            ),
            _ISA,
            "gather with nisa.nc_n_gather first, and pass a plain view",
            _made,
            remedy=lambda a, t: _remedy(a, dst),
        ),
        Rule(
            "indirect-partitions",
            f"an index starts at a multiple of {{t.quadrant}} partitions; that of {data} where {data} starts; "
            f"that of {dst} where {data} starts, or in PSUM where the index of {data} starts",
            lambda a, t: (
                (getattr(a, dst).dynamic is None and getattr(a, data).dynamic is None)
                or all(first == second for first, second in _pairs(getattr(a, dst), getattr(a, data), t))
            ),
            _ISA,
            "move the index to the start partition of what it indexes, or let the allocator place both",
            _shown,
        ),
    ]
    if engine is Engine.scalar:
        rules.append(
            Rule(
                "indirect-psum",
                f"a scattered {dst} is not in PSUM",
                lambda a, t: not _index(getattr(a, dst)) or getattr(a, dst).region is MemoryRegion.sbuf,
                _ISA,
                "scatter to SBUF",
                _shown,
            )
        )
    return rules


def _any_indirect(arguments: Any) -> bool:
    """The quick answer for most instructions."""
    return any(isinstance(value, View) and isinstance(value.dynamic, FreeIndirection) for value in arguments)


def _views(arguments: Any) -> Iterator[tuple[str, View]]:
    return ((name, v) for name, v in zip(arguments._fields, arguments, strict=True) if isinstance(v, View))


def _index(view: View) -> View | None:
    return view.dynamic.indices if isinstance(view.dynamic, FreeIndirection) else None


def _start(view: View, t: Target) -> int | None:
    """First partition if the kernel decides it: by an address, or because the buffer fits at 0 only."""
    fixed = view.buffer.address is not None or t.access.start_partitions(view.buffer.partitions) == (0,)
    return view.start_partition if fixed else None


def _pairs(dst: View, data: View, t: Target) -> Iterator[tuple[int, int]]:
    """Start partitions that must be equal, where both are decided."""
    to, source = _index(dst), _index(data)
    wanted: list[tuple[View | None, View | None]] = [(source, data if source else None)]
    wanted.append((to, data if data.region is MemoryRegion.sbuf else source))
    for first, second in wanted:
        if first is not None and second is not None:
            starts = _start(first, t), _start(second, t)
            if starts[0] is not None and starts[1] is not None:
                yield starts[0], starts[1]
    for index in (to, source):
        start = None if index is None else _start(index, t)
        if start is not None:
            yield start % t.quadrant, 0


def _made(a: Any, t: Target) -> str:
    names = " and ".join(name for name, view in _views(a) if _index(view))
    verb = "are" if " and " in names else "is"
    return f"{names} {verb} made by .indirect()" + (
        "" if t.has("tensor_indirection") else f"; {t.name} has no tensor indirection"
    )


def _remedy(a: Any, dst: str) -> str:
    if any(name == dst and _index(view) for name, view in _views(a)):
        return f"write {dst} as a plain view, or scatter rows of an HBM tensor with nisa.dma_copy and vector_offset"
    return "gather with nisa.nc_n_gather first, and pass a plain view"


def _shown(a: Any, t: Target) -> str:
    texts = []
    for name, view in _views(a):
        index = _index(view)
        if index is not None:
            texts.append(f"{name} starts at partition {view.start_partition}, its index at {index.start_partition}")
    return "; ".join(texts)
