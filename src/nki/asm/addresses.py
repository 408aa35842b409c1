"""Where an access starts: from the offset of a view to a physical address, and back."""

from __future__ import annotations

from nki.asm.errors import damaged
from nki.asm.streams import Access
from nki.core.tensor import View


def start_of(view: View, address: tuple[int, int] | None) -> tuple[int, int]:
    """Partition and byte of the first element, in a buffer with that address; HBM counts from the buffer's start."""
    partition, byte = address or (0, 0)
    if not view.on_chip or view.row == 0:
        return partition, byte + view.offset * view.dtype.itemsize
    row, column = divmod(view.offset, view.row)
    return partition + row, byte + column * view.dtype.itemsize


def offset_of(view: View, access: Access, address: tuple[int, int] | None) -> int:
    """The offset of the view that starts where the access does; the view's own is not looked at.

    Raises:
        ArtifactError: "asm.access" if there is none.
    """
    partition, byte = address or (0, 0)
    elements, rest = divmod(access.byte - byte, view.dtype.itemsize)
    per_partition = view.row if view.on_chip else 0
    if rest or (per_partition == 0 and access.partition != partition):
        raise damaged("asm.access", shown(access), "an access starts at a whole element of its buffer")
    return elements + (access.partition - partition) * per_partition


def check_inside(view: View, access: Access) -> None:
    """Refuse a static view that leaves its buffer, as readers of IR do; dynamic views are checked when they are used.

    Raises:
        ArtifactError: "asm.access".
    """
    if view.dynamic is not None or 0 in view.shape:
        return
    steps = [(size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True)]
    first = view.offset + sum([step for step in steps if step < 0])
    last = view.offset + sum([step for step in steps if step > 0])
    if first < 0 or last >= view.buffer.nbytes // view.dtype.itemsize:
        raise damaged("asm.access", shown(access), f"an access of {view.buffer!r} lies inside it", view.buffer.location)


def shown(access: Access) -> str:
    """An access as messages show it."""
    pattern = str(list(access.pattern))[:200]
    return f"access {access.dtype[:40]} {pattern} at {access.partition}, {access.byte} of buffer {access.buffer}"
