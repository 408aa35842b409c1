"""``nki.tensor`` of the first NKI: a part of a memory, with NumPy's operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, ClassVar, NoReturn

from nki.beta1.errors import Beta1TypeError, Beta1ValueError, refused
from nki.beta1.tensors.access import Access, Axis, access_of
from nki.beta1.tensors.axes import axes_of
from nki.beta1.tensors.dynamic import is_dynamic, moves_by_number
from nki.beta1.tensors.index import Index
from nki.beta1.tensors.mask import Box, Mask, Region, region_of, whole_region
from nki.beta1.tensors.memory import Memory, visible
from nki.beta1.tensors.scalar import RunTimeIndex, RunTimeValue
from nki.core.dtypes import DType
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion
from nki.spec.allocation import checked_dtype

Shape = tuple[int, ...]


class Tensor:
    """A tensor in HBM, or a tile on chip; subscripts are views of the same memory.

    Attributes:
        memory: what it is a part of.
        access: which part.
        mask: what ``tensor[mask]`` said of it; None if nothing.
    """

    __slots__ = ("access", "mask", "memory")
    __array_ufunc__ = None

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}
    """What operators and methods compute: functions of `nki.beta1.language`, which is above this module."""

    def __init__(self, memory: Memory, access: Access, mask: Mask | None = None) -> None:
        self.memory = memory
        self.access = access
        self.mask = mask

    @staticmethod
    def of(tensor: NkiTensor) -> Tensor:
        """The tensor of the first NKI for one of today."""
        memory = Memory.of(tensor)
        return Tensor(memory, Access.of_whole(memory.sizes))

    # --- what it is

    @property
    def shape(self) -> Shape:
        return self.access.shape

    @property
    def ndim(self) -> int:
        return len(self.access.shape)

    @property
    def dtype(self) -> DType:
        return self.memory.dtype

    @property
    def itemsize(self) -> int:
        return self.memory.dtype.itemsize

    @property
    def buffer(self) -> MemoryRegion:
        """The memory region."""
        return self.memory.region

    @property
    def name(self) -> str:
        return self.memory.name

    @property
    def on_chip(self) -> bool:
        return self.memory.partition is not None

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"tensor({self.describe()})"

    def describe(self) -> str:
        """Short text for messages: ``float32 tmp[128, 512] in sbuf``."""
        return f"{self.dtype} {self.name}{list(self.shape)} in {self.buffer}"

    # --- its elements

    def elements(self, box: Box | None = None, *, moved: bool = False) -> NkiTensor:
        """The elements, or those of a box, as an operand of instructions; a row that is repeated stays one row.

        Args:
            moved: whether the instruction copies, and takes an index of run time on chip.
        """
        found = self.memory.known(self.access, box)
        if found is not None:
            return found
        if self.on_chip and not moved and is_dynamic(self.access) and not moves_by_number(self.access):
            raise refused(
                "copy_dynamic_indirect_indices_not_natively_supported",
                f"{self.describe()} has an index of run time, which this instruction does not take",
                "copy it first: nisa.tensor_copy_dynamic_src(tile[...]); write with nisa.tensor_copy_dynamic_dst",
            )
        return self.memory.view(self.access, box)

    def nki_tensor(self) -> NkiTensor:
        """The elements, for a kernel of today that is called with them."""
        return self.elements()

    def visible(self) -> Box | None:
        """The box in which it exists: a masked instruction leaves the rest undefined."""
        return visible(self.memory, self.access)

    def region(self) -> Region:
        """Where the mask of ``tensor[mask]`` is true."""
        return whole_region(self.access.shape) if self.mask is None else region_of(self.mask, self.access.shape)

    # --- parts of it

    def __getitem__(self, key: Any) -> Tensor:
        if isinstance(key, (Mask, bool)):
            return Tensor(self.memory, self.access, self.joined(key))
        if key is Ellipsis:
            return self
        memory, access = self.memory, self.access
        inner = access_of(key, access.shape, self._partitions(), memory.name)
        if len(inner.shape) == 1 and self.on_chip and _has_index(key):
            raise refused(
                "1d_arange_not_supported",
                f"indexing tensor `{self.name}`{list(self.shape)} with 1d arange is not supported",
                "say which axis it is: nl.arange(n)[:, None] for partitions, nl.arange(n)[None, :] for a free axis",
                rule="a tile has two dimensions at least",
            )
        part = inner if access is Access.of_whole(access.shape) else access.then(inner)
        found = Tensor(memory, part, None if self.mask is None else self._mask_of(inner))
        return found.expand_dims(1) if len(inner.shape) == 1 and found._partitions() == 0 else found

    def __setitem__(self, key: Any, value: Any) -> None:
        target = self[key]
        if isinstance(value, Tensor) and value.memory is self.memory and value.access == target.access:
            return  # what `tensor[key] += value` gives, which has been written
        self.functions["assign"](target, value)

    def _partitions(self) -> int | None:
        """Which axis is that of the partitions: an int leaves it with one element. None if no axis is."""
        partition = self.memory.partition
        if partition is None:
            return None
        for axis, step in enumerate(self.access.axes[partition].steps):
            if step:
                return axis
        return None

    def _mask_of(self, part: Access) -> Any:
        """What the mask says of a part, or of another form of the tensor."""
        return self.mask.through(part) if isinstance(self.mask, Mask) else self.mask

    def joined(self, mask: Any) -> Any:
        """Where its own mask and another one are true."""
        if self.mask is None or mask is None:
            return mask if self.mask is None else self.mask
        return self.mask & mask

    def __iter__(self) -> NoReturn:
        raise refused(
            "tensor_iteration",
            f"{self.describe()} is iterated over",
            "write for i in nl.affine_range(tensor.shape[0]), and index with i",
            kind=Beta1TypeError,
        )

    # --- other forms of it

    def reshape(self, shape: Any, *more: Any) -> Tensor:
        """A view with another shape of the same elements, in the same order; on chip the partitions stay."""
        given = shape if isinstance(shape, Sequence) else (shape, *more)
        sizes = tuple(int(size) for size in given)
        if sizes == self.shape:
            return self
        own, base = self.shape, self.elements()
        if prod(own) == prod(sizes) and without_ones(own) == without_ones(sizes) and not self.on_chip:
            return self._regrouped(sizes)
        reshaped = base.reshape(sizes) if base.shape != sizes else base
        return Tensor.of(reshaped)

    def _regrouped(self, sizes: Shape) -> Tensor:
        """Axes of size 1 put in or left out."""
        kept = [at for at, size in enumerate(self.shape) if size != 1]

        def regrouped(axis: Axis) -> Axis:
            left = iter([axis.steps[at] for at in kept])
            return axis._replace(steps=tuple(next(left) if size != 1 else 0 for size in sizes))

        return self._mapped(sizes, regrouped)

    def expand_dims(self, axis: int | Sequence[int]) -> Tensor:
        """A view with new axes of size 1, which are at `axis` in its shape."""
        found, rank = self, self.ndim + (len(axis) if isinstance(axis, Sequence) else 1)
        for at in axes_of(axis, rank, "expand_dims"):
            found = found._with_one(at)
        return found

    def _with_one(self, at: int) -> Tensor:
        shape = (*self.shape[:at], 1, *self.shape[at:])
        return self._mapped(shape, lambda a: a._replace(steps=(*a.steps[:at], 0, *a.steps[at:])))

    def broadcast_to(self, shape: Any) -> Tensor:
        """A view that repeats axes of size 1, and may have more in front."""
        sizes = tuple(int(size) for size in (shape if isinstance(shape, Sequence) else (shape,)))
        more = len(sizes) - self.ndim
        if more < 0 or any(own not in (1, size) for own, size in zip(self.shape, sizes[more:], strict=True)):
            raise refused(
                "failed_to_broadcast",
                f"{self.describe()} does not broadcast to {list(sizes)}",
                "only axes of size 1 are repeated",
            )

        def repeated(axis: Axis) -> Axis:
            steps = tuple(
                step if size == own else 0 for step, size, own in zip(axis.steps, sizes[more:], self.shape, strict=True)
            )
            return axis._replace(steps=(0,) * more + steps)

        return self._mapped(sizes, repeated)

    def _mapped(self, shape: Shape, change: Callable[[Axis], Axis]) -> Tensor:
        """A view with another shape, given what becomes of an index."""
        mask = self._mask_of(Access.of_whole(self.shape).mapped(shape, change))
        return Tensor(self.memory, self.access.mapped(shape, change), mask)

    def view(self, dtype: Any) -> Tensor:
        """A view of the bytes as another dtype; the last axis grows or shrinks."""
        kind, memory = checked_dtype(dtype), self.memory
        if memory.partition and memory.exists is None and self.access is Access.of_whole(memory.sizes):
            seen = memory.viewed(kind)
            return Tensor(seen, Access.of_whole(seen.sizes))
        return Tensor.of(self.elements().view(kind))

    def astype(self, dtype: Any) -> Tensor:
        """A copy with another dtype."""
        made: Tensor = self.functions["copy"](self, dtype=dtype)
        return made

    def as_tile(self) -> Tensor:
        """The tensor itself: what is indexed on chip is a tile."""
        return self

    def assert_shape(self, shape: Any) -> Tensor:
        """The tensor itself. Raises AssertionError if it has another shape."""
        if tuple(shape) != self.shape:
            raise AssertionError(f"Expected {self.name} of shape {tuple(shape)}, got {self.shape}")
        return self

    # --- truth, and indices of run time

    def __neg__(self) -> Any:
        return self.functions["negative"](self)

    def __invert__(self) -> Any:
        return self.functions["invert"](self)

    def __abs__(self) -> Any:
        return self.functions["abs"](self)

    __hash__ = object.__hash__

    def __bool__(self) -> NoReturn:
        if prod(self.shape) > 1:
            raise refused(
                "ambiguous_tensor_truth_value",
                "Cannot evaluate truth value of a multi-element tensor/array",
                "use &, | and ~ on tiles, and `is not None` to ask whether there is one",
                kind=Beta1ValueError,
            )
        raise refused(
            "dynamic_control_flow_not_supported",
            "dynamic control-flow depending on tensor value is not supported",
            "compute both, and choose with nl.where; for a loop, write `cond = nt.scalar(True)`, `while cond:` and, at "
            "the end of its body, `cond = nt.scalar(tile)`",
            kind=Beta1ValueError,
        )

    def __index__(self) -> NoReturn:
        raise refused(
            "dynamic_control_flow_not_supported",
            f"{self.describe()} is used where Python needs an int",
            "for the trips of a loop, make a number of its one element: for i in nl.sequential_range(nt.scalar(tile))",
            rule="what a tile holds is known when the kernel runs",
            kind=Beta1TypeError,
        )

    def run_time_index(self) -> tuple[Index, RunTimeValue]:
        """As the index of another tensor: no position of its own, and the values that it has at run time."""
        return RunTimeIndex(self).run_time_index()


def _has_index(key: Any) -> bool:
    return any(isinstance(each, Index) for each in (key if isinstance(key, tuple) else (key,)))


def without_ones(shape: Shape) -> Shape:
    """A shape without its sizes of 1."""
    return tuple(size for size in shape if size != 1)


def _operator(name: str, function: str) -> None:
    def forward(self: Tensor, other: Any) -> Any:
        if isinstance(other, Index):
            return _with_index(self, other, name)
        return self.functions[function](self, other)

    def backward(self: Tensor, other: Any) -> Any:
        if isinstance(other, Index):
            return _with_index(self, other, name)
        return self.functions[function](other, self)

    setattr(Tensor, f"__{name}__", forward)
    setattr(Tensor, f"__r{name}__", backward)


def _with_index(tile: Tensor, index: Index, name: str) -> RunTimeIndex:
    if name != "add":
        raise refused(
            "unsupported_expression_in_index",
            f"an index of run time is combined with nl.arange by {name}",
            "compute the index in a tile, and add nl.arange to it",
        )
    return RunTimeIndex(tile, index)


def _comparison(name: str, function: str) -> None:
    setattr(Tensor, f"__{name}__", lambda self, other: self.functions[function](self, other))


def _in_place(name: str, function: str) -> None:
    def change(self: Tensor, other: Any) -> Tensor:
        self.functions["update"](self, function, other)
        return self

    setattr(Tensor, f"__i{name}__", change)


_ARITHMETIC = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "mod": "mod",
    "pow": "power",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
for _name, _function in _ARITHMETIC.items():
    _operator(_name, _function)
    _in_place(_name, _function)
COMPARISONS = {
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
}
"""Functions of the language by Python's comparisons."""
for _name, _function in COMPARISONS.items():
    _comparison(_name, _function)
