"""Memory behind tensors: dimensions as the kernel counts them, and where their elements are.

On chip the dimensions before the partition's are blocks. A block is a tensor of its own, made when it is first used,
and lives no longer than it is needed. If the first access spans several blocks, all of them are one tensor, in which
they lie behind each other in every partition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from nki.beta1.errors import refused
from nki.beta1.tensors.access import Access
from nki.beta1.tensors.dynamic import dynamic_of, is_dynamic
from nki.beta1.tensors.mask import Box, whole_box
from nki.beta1.tensors.naming import named
from nki.core.dtypes import DType
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion, VectorOffset, View, contiguous_strides

Shape = tuple[int, ...]


@dataclass(eq=False, slots=True)
class Memory:
    """The memory of a tensor.

    Attributes:
        sizes: of the dimensions, as the kernel counts them.
        steps: elements from one index of a dimension to the next one; 0 for blocks that are tensors of their own.
        offset: of the first element.
        partition: which dimension is the partition's; None in HBM.
        whole: the tensor that holds all of it; None if blocks are tensors of their own.
        make: makes the tensor of a block.
        together: makes one tensor of all blocks, (partitions, blocks, ...); None if blocks have addresses of their own.
        exists: what of it there is; the rest is as undefined as what a masked instruction leaves out.
        exact: whether `whole` has these sizes, and begins where this begins.
        pending: makes the tensor that holds all of it, once somebody asks for its elements.
        name: for messages; one that nobody chose is formatted as the variable that holds the tensor.
    """

    sizes: Shape
    steps: Shape
    offset: int
    dtype: DType
    region: MemoryRegion
    partition: int | None
    whole: NkiTensor | None
    make: Callable[[Shape], NkiTensor] | None = None
    together: Callable[[], NkiTensor] | None = None
    exists: Box | None = None
    name: str = ""
    exact: bool = False
    pending: Callable[[], NkiTensor] | None = None
    blocks: dict[Shape, NkiTensor] = field(default_factory=dict)
    _views: dict[tuple[Access, Box | None], NkiTensor] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.name = named(self.name, self.region)

    @staticmethod
    def of(tensor: NkiTensor) -> Memory:
        """The memory of a tensor without blocks."""
        buffer, dtype, shape, strides, offset, _ = tensor.view_record
        partition = 0 if buffer.on_chip else None
        return Memory(shape, strides, offset, dtype, buffer.region, partition, tensor, name=buffer.name, exact=True)

    @property
    def on_chip(self) -> bool:
        return self.partition is not None

    def settle(self) -> None:
        """Make what is pending."""
        if self.pending is not None:
            self.whole = self.pending()
            self.pending = None

    def as_part(self, sizes: Shape, box: Box) -> Memory:
        """A memory of which this one holds the elements of a box, or will; the rest does not exist."""
        low = sum([step * first for step, (first, _) in zip(self.steps, box, strict=True)])
        return Memory(
            sizes,
            self.steps,
            self.offset - low,
            self.dtype,
            self.region,
            self.partition,
            self.whole,
            exists=box,
            name=self.name,
            pending=self.pending,
        )

    def known(self, access: Access, box: Box | None) -> NkiTensor | None:
        """The elements of an access, or of a box of it, if they are all there is, or somebody asked for them before."""
        if self.pending is not None:
            self.settle()
        if self.exact and access is Access.of_whole(self.sizes) and (box is None or box == whole_box(self.sizes)):
            return self.whole
        return self._views.get((access, box))

    def view(self, access: Access, box: Box | None) -> NkiTensor:
        """The elements of an access, or of a box of it, as a tensor of instructions."""
        dynamic = is_dynamic(access)
        base = self._tensor(access)
        shape = access.shape if box is None else tuple([high - low for low, high in box])
        strides, spans = _laid_out(access.shape, tuple([axis.steps for axis in access.axes]), self.steps)
        offset, inside = self.offset, box is None and not access.limits
        for (start, _, _), step, size, (low, high) in zip(access.axes, self.steps, self.sizes, spans, strict=True):
            offset += step * start
            inside = inside and start + low >= 0 and start + high < size
        if not inside:
            access.check(box, self.sizes, self.name)
        if box is not None:
            offset += sum([stride * low for stride, (low, _) in zip(strides, box, strict=True)])
        if self.on_chip:
            shape, strides = self._on_chip(access, shape, strides)
        elif not shape:
            shape, strides = (1,), (1,)
        view = View(base.view_record.buffer, self.dtype, shape, strides, offset)
        if not dynamic:
            found = self._views[access, box] = NkiTensor.of(view, base.storage)
            return found
        moved, index = dynamic_of(self, access, box)
        if moved is None:
            return NkiTensor.of(view, base.storage)
        rows = (moved.scale, *strides[1:]) if isinstance(moved, VectorOffset) else view.strides
        return base._with(view._replace(strides=rows, dynamic=moved), index)

    def _tensor(self, access: Access) -> NkiTensor:
        if self.whole is not None:
            return self.whole
        assert self.partition is not None and self.make is not None, "only blocks on chip are tensors of their own"
        at = []
        for dim in range(self.partition):
            axis = access.axes[dim]
            low, high = access.bounds(axis, None) if axis.tile is None else (0, self.sizes[dim] - 1)
            if low != high:
                if self.together is not None and not self.blocks:
                    return self._joined()
                raise refused(
                    "failed_to_infer_tile_from_local_tensor",
                    f"an access to tensor `{self.name}`{list(self.sizes)} spans blocks {low} to {high} "
                    f"of dimension {dim}",
                    "index one block at a time: tensor[block, ...], or let the first access span all of them",
                    rule="blocks that were used one by one, and blocks with addresses of their own, are not one tile",
                )
            at.append(low)
        return self._block(tuple(at))

    def _block(self, block: Shape) -> NkiTensor:
        if block not in self.blocks:
            assert self.make is not None, "blocks are made when they are first used"
            self.blocks[block] = self.make(block)
        return self.blocks[block]

    def viewed(self, dtype: DType) -> Memory:
        """A memory with the same bytes as another dtype; the last dimension grows or shrinks."""
        self.settle()
        have, want = self.dtype.itemsize, dtype.itemsize
        whole = None if self.whole is None else self.whole.view(dtype)
        *sizes, last = self.sizes
        steps = tuple([step * have // want for step in self.steps[:-1]])
        made = replace(self, sizes=(*sizes, last * have // want), steps=(*steps, 1), offset=self.offset * have // want)
        make = None if whole is not None else lambda block: self._block(block).view(dtype)
        return replace(made, dtype=dtype, whole=whole, make=make, together=None, blocks={})

    def _joined(self) -> NkiTensor:
        """All blocks as one tensor, in which they lie behind each other."""
        assert self.partition is not None and self.together is not None, "blocks are on chip"
        self.whole = self.together()
        blocks, free = self.sizes[: self.partition], self.sizes[self.partition + 1 :]
        behind = contiguous_strides((*blocks, *free))
        self.steps = (*behind[: self.partition], self.whole.strides[0], *behind[self.partition :])
        return self.whole

    def _on_chip(self, access: Access, shape: Shape, strides: Shape) -> tuple[Shape, Shape]:
        """The first axis is the partition; a tile has two at least. A row that is repeated stays one row."""
        assert self.partition is not None, "on chip there are partitions"
        steps = access.axes[self.partition].steps
        row = self.steps[self.partition]
        if any(steps[1:]) or (len(shape) and strides[0] % row and shape[0] > 1):
            raise refused(
                "failed_to_infer_tile_from_local_tensor",
                f"failed to infer a tile from tensor `{self.name}`{list(self.sizes)}: its partition dimension "
                f"{self.partition} is not the first axis of the access",
                "index the blocks with ints, and let the partitions be the first axis: tensor[block, i_p, i_f]",
                rule="a tile is a tensor whose first dimension is the partition",
            )
        if not shape:
            return (1, 1), (row, 1)
        if strides[0] == 0 or shape[0] == 1:
            shape, strides = (1, *shape[1:]), (row, *strides[1:])
        return (shape, strides) if len(shape) > 1 else ((*shape, 1), (*strides, 1))


@lru_cache(maxsize=1 << 12)  # ints alone; accesses differ in where they start, and have few forms
def _laid_out(shape: Shape, axes: tuple[Shape, ...], steps: Shape) -> tuple[Shape, tuple[tuple[int, int], ...]]:
    """The strides of an access, and how far below and above its start the index of each dimension goes."""
    strides, spans = [0] * len(shape), []
    for axis, step in zip(axes, steps, strict=True):
        ends = [own * (size - 1) for own, size in zip(axis, shape, strict=True)]
        spans.append((sum([min(end, 0) for end in ends]), sum([max(end, 0) for end in ends])))
        for at, own in enumerate(axis):
            strides[at] += step * own
    return tuple(strides), tuple(spans)


def visible(memory: Memory, access: Access) -> Box | None:
    """The box of an access in which its elements exist; None if that is no box."""
    if memory.exists is None:
        return whole_box(access.shape)
    if access is Access.of_whole(memory.sizes):
        return memory.exists
    box = [(0, size) for size in access.shape]
    for axis, (low, high) in zip(access.axes, memory.exists, strict=True):
        least, most = access.bounds(axis, None)
        if low <= least and most < high:
            continue
        moved = [at for at, step in enumerate(axis.steps) if step and access.shape[at] > 1]
        if not moved:
            if not low <= axis.start < high:
                return tuple((0, 0) for _ in box)
            continue
        if len(moved) > 1:
            return None
        at, step = moved[0], axis.steps[moved[0]]
        if step > 0:
            first, after = -(-(low - axis.start) // step), -(-(high - axis.start) // step)
        else:
            first, after = (axis.start - high) // -step + 1, (axis.start - low) // -step + 1
        box[at] = (max(box[at][0], first), min(box[at][1], after))
    return tuple((low, max(low, high)) for low, high in box)
