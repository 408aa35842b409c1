"""Addresses in SBUF from a stack with scopes and from a heap, both in one region; or left to the compiler.

The stack grows upwards from the lower bound. A scope gives back what was put on it since it was opened. A scope of
several sections is for a loop with as many buffers: each pass takes the next section, beyond everything that the
sections before it used, scopes inside them included; after the last section it begins again at the first. The heap
grows downwards from the upper bound, and gives back the newest tensor first.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import nki.language as nl
from nkilib.core.utils.kernel_assert import kernel_assert
from nkilib.core.utils.kernel_helpers import get_ceil_aligned_size, get_floor_aligned_size
from nkilib.core.utils.logging import Logger, LogLevel, get_logger

_HEAP_ALIGNMENT_BYTES = 4
align_to = get_ceil_aligned_size


def sizeinbytes(dtype: Any) -> int:
    """Bytes of an element of a dtype of `nki.language`."""
    return int(dtype.itemsize)


def num_elts(shape: tuple[int, ...]) -> int:
    """Elements of a tensor of that shape."""
    return prod(shape)


@dataclass
class Scope(nl.NKIObject):
    """A scope on the stack.

    Attributes:
        name: for the log.
        start: where the stack was when it was opened.
        sections: how many passes of a loop have memory of their own.
        section: in which of them allocations go.
        top: the highest address that this scope and scopes in it have used since section 0 began.
    """

    name: str
    start: int
    sections: int
    section: int = 0
    top: int = 0


class SbufManager(nl.NKIObject):
    """Gives tensors in SBUF their addresses.

    Args:
        sb_lower_bound, sb_upper_bound: the region, in bytes of each partition.
        logger: gets the log; at level DEBUG a tree of all allocations.
        use_auto_alloc: leave addresses to the compiler, which may then move and overlap tensors as it likes.
        default_stack_alloc: whether `alloc` takes the stack.

    Raises (all methods):
        KernelAssertion: a region that is full, a stack without a scope, an empty heap, a memory that is not SBUF, a
            question about addresses that the compiler chooses (``nkilib.argument``).
    """

    def __init__(
        self,
        sb_lower_bound: int,
        sb_upper_bound: int,
        logger: Logger | None = None,
        use_auto_alloc: bool = False,
        default_stack_alloc: bool = True,
    ) -> None:
        kernel_assert(
            0 <= sb_lower_bound <= sb_upper_bound, f"the region is {sb_lower_bound} to {sb_upper_bound}: none at all"
        )
        self.lower_bound, self.upper_bound = sb_lower_bound, sb_upper_bound
        self.logger = get_logger("SBM") if logger is None else logger
        self.use_auto_alloc, self.default_stack_alloc = use_auto_alloc, default_stack_alloc
        self.stack_curr_addr, self.heap_curr_addr = sb_lower_bound, sb_upper_bound
        self.scopes: list[Scope] = []
        self.heap: list[tuple[str, int]] = []
        self.prefix = ""
        self.lines: list[str] = []

    # --- the stack

    def open_scope(self, interleave_degree: int = 1, name: str = "") -> None:
        """Open a scope, of as many sections as passes of a loop shall overlap."""
        kernel_assert(interleave_degree > 0, f"interleave_degree is {interleave_degree}: a scope has a section")
        self._log(f"▶ SCOPE {_shown(name)} [interleave={interleave_degree}] @ {self.stack_curr_addr}")
        here = self.stack_curr_addr
        self.scopes.append(Scope(name=name, start=here, sections=interleave_degree, top=here))

    def close_scope(self) -> None:
        """Close the newest scope; what was put on the stack in it is free again."""
        closed = self._scope()
        self.scopes.pop()
        self._log(f"◀ END {_shown(closed.name)} freed={self.stack_curr_addr - closed.start} B")
        self.stack_curr_addr = closed.start
        self._reach(closed.top)
        if not self.scopes:
            self.flush_logs()

    def increment_section(self) -> None:
        """Go on with the next section of the newest scope, after the last one with the first."""
        scope = self._scope()
        scope.section = (scope.section + 1) % scope.sections
        if scope.section == 0:
            if len(self.scopes) > 1:  # the scope around it must not forget what this round has used
                outer = self.scopes[-2]
                outer.top = max(outer.top, scope.top)
            scope.top = scope.start
        self.stack_curr_addr = scope.top
        self._log(f"{'↳' if scope.section else '↻'} section: {scope.section}/{scope.sections} @ {scope.top}")

    def alloc_stack(
        self,
        shape: tuple[int, ...],
        dtype: Any,
        buffer: Any = nl.sbuf,
        name: str | None = None,
        base_partition: int = 0,
        align: int | None = None,
    ) -> Any:
        """A tensor on the stack.

        Args:
            shape, dtype, buffer, name: as of `nl.ndarray`; the name gets the prefix.
            base_partition: the first partition.
            align: its address is a multiple of so many bytes; by default of an element.
        """
        size = self._size(shape, dtype, buffer)
        self._scope()
        start = align_to(self.stack_curr_addr, align or sizeinbytes(dtype))
        self._fits(start + size <= self.heap_curr_addr, size)
        self.stack_curr_addr = start + size
        self._reach(self.stack_curr_addr)
        return self._new(shape, dtype, buffer, name, base_partition, start, f"{size} B @ {start}")

    # --- the heap

    def alloc_heap(
        self,
        shape: tuple[int, ...],
        dtype: Any,
        buffer: Any = nl.sbuf,
        name: str | None = None,
        base_partition: int = 0,
        align: int | None = None,
    ) -> Any:
        """A tensor on the heap, until `pop_heap`; arguments as of `alloc_stack`."""
        size = self._size(shape, dtype, buffer)
        start = get_floor_aligned_size(self.heap_curr_addr - size, align or _HEAP_ALIGNMENT_BYTES)
        self._fits(start >= self.stack_curr_addr, size)
        self.heap.append((_shown(name), self.heap_curr_addr))
        self.heap_curr_addr = start
        return self._new(shape, dtype, buffer, name, base_partition, start, f"[HEAP+] {size} B @ {start}")

    def pop_heap(self) -> None:
        """Free the newest tensor of the heap."""
        kernel_assert(bool(self.heap), "the heap is empty: pop_heap was called once more than alloc_heap")
        name, before = self.heap.pop()
        self._log(f"[HEAP-] FREE {name}: {before - self.heap_curr_addr} B, remaining={len(self.heap)}")
        self.heap_curr_addr = before

    def alloc(
        self,
        shape: tuple[int, ...],
        dtype: Any,
        buffer: Any = nl.sbuf,
        name: str | None = None,
        base_partition: int = 0,
        align: int | None = None,
    ) -> Any:
        """A tensor on the stack or the heap, as `default_stack_alloc` says; in HBM where `buffer` is device memory."""
        if buffer in (nl.hbm, nl.shared_hbm, nl.private_hbm):
            return nl.ndarray(shape, dtype=dtype, buffer=buffer, name=self._name(name))
        take = self.alloc_stack if self.default_stack_alloc else self.alloc_heap
        return take(shape, dtype, buffer, name, base_partition, align)

    # --- questions and settings

    def is_auto_alloc(self) -> bool:
        """Whether the compiler chooses addresses."""
        return self.use_auto_alloc

    def set_auto_alloc(self, value: bool) -> None:
        """Let the compiler choose addresses from now on, or not."""
        self.use_auto_alloc = value

    def is_default_stack_alloc(self) -> bool:
        """Whether `alloc` takes the stack."""
        return self.default_stack_alloc

    def is_default_heap_alloc(self) -> bool:
        """Whether `alloc` takes the heap."""
        return not self.default_stack_alloc

    def get_total_space(self) -> int:
        """Bytes of the region."""
        return self.upper_bound - self.lower_bound

    def get_free_space(self) -> int:
        """Bytes between stack and heap."""
        return self.heap_curr_addr - self.stack_curr_addr

    def get_used_space(self) -> int:
        """Bytes of stack and heap."""
        return self.get_total_space() - self.get_free_space()

    def get_stack_curr_addr(self) -> int:
        """Where the stack ends."""
        self._has_addresses("get_stack_curr_addr")
        return self.stack_curr_addr

    def get_heap_curr_addr(self) -> int:
        """Where the heap begins."""
        self._has_addresses("get_heap_curr_addr")
        return self.heap_curr_addr

    def align_stack_curr_addr(self, align: int = 32) -> None:
        """Move the end of the stack up to a multiple."""
        self._has_addresses("align_stack_curr_addr")
        self.stack_curr_addr = align_to(self.stack_curr_addr, align)

    def set_name_prefix(self, prefix: str) -> None:
        """Put a prefix before the names of all tensors that follow."""
        self.prefix = prefix

    def get_name_prefix(self) -> str:
        """The prefix of names."""
        return self.prefix

    def flush_logs(self) -> None:
        """Print the tree of allocations since the last time, at level DEBUG."""
        for line in ["[SBM] Allocations:", *self.lines] if self.lines else []:
            self.logger.debug(line)
        self.lines.clear()

    # --- within

    def _scope(self) -> Scope:
        kernel_assert(bool(self.scopes), "the stack has no open scope: call open_scope first")
        return self.scopes[-1]

    def _reach(self, address: int) -> None:
        if self.scopes:
            self.scopes[-1].top = max(self.scopes[-1].top, address)

    def _size(self, shape: tuple[int, ...], dtype: Any, buffer: Any) -> int:
        kernel_assert(buffer == nl.sbuf, f"buffer is {buffer}: a manager of SBUF has tensors in SBUF")
        return num_elts(tuple(shape[1:])) * sizeinbytes(dtype)

    def _fits(self, room: bool, size: int) -> None:
        kernel_assert(
            room or self.use_auto_alloc,
            f"out of memory: a tensor of {size} bytes per partition, {self.get_free_space()} are free of "
            f"{self.get_total_space()}",
        )

    def _has_addresses(self, method: str) -> None:
        kernel_assert(not self.use_auto_alloc, f"{method} is not supported in auto-allocation mode")

    def _name(self, name: str | None) -> str:
        return "" if name is None else f"{self.prefix}{name}"

    def _new(
        self, shape: tuple[int, ...], dtype: Any, buffer: Any, name: str | None, partition: int, start: int, told: str
    ) -> Any:
        self._log(f"{_shown(self._name(name))}: {told} {tuple(shape)} {dtype}")
        address = None if self.use_auto_alloc else (partition, start)
        return nl.ndarray(tuple(shape), dtype=dtype, buffer=buffer, name=self._name(name), address=address)

    def _log(self, line: str) -> None:
        if self.logger.is_enabled_for(LogLevel.DEBUG):
            self.lines.append("    " + "│   " * max(0, len(self.scopes) - 1) + ("├── " if self.scopes else "") + line)


def _shown(name: str | None) -> str:
    return name or "(unnamed)"


BufferManager = SbufManager
"""Its name where it hands out device memory as well."""


def create_auto_alloc_manager(logger: Logger | None = None) -> SbufManager:
    """A manager that leaves addresses to the compiler."""
    return SbufManager(0, nl.tile_size.sbuf_fmax_bytes, logger, use_auto_alloc=True)
