"""Views of a tensor under the names of the published wrapper; tensors of this toolchain have all of them themselves."""

from __future__ import annotations

from math import prod
from typing import Any

import nki.language as nl
from nki import errors
from nkilib.core.utils.kernel_assert import kernel_assert
from nkilib.core.utils.kernel_helpers import is_hbm_buffer


class TensorView(nl.NKIObject):
    """A view of a tensor; each method returns another view, and nothing is copied.

    Args:
        base_tensor: a tensor, or a view, of which this becomes another one.
    """

    base_tensor: Any

    def __init__(self, base_tensor: Any) -> None:
        kernel_assert(base_tensor is not None, "a view needs a tensor, and got None")
        of_view = isinstance(base_tensor, TensorView)
        self.base_tensor = base_tensor.base_tensor if of_view else base_tensor
        self._view = base_tensor._view if of_view else base_tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each dimension."""
        return tuple(self._view.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from one index to the next, in each dimension."""
        return tuple(self._view.strides)

    @property
    def offset(self) -> int:
        """Elements from the start of the storage to the first one."""
        return int(self._view.offset)

    @property
    def dtype(self) -> Any:
        """dtype of the elements."""
        return self._view.dtype

    def get_view(self) -> Any:
        """The view as a tensor, for instructions."""
        return self._view

    def get_dim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def is_sbuf(self) -> bool:
        """Whether the tensor lies in SBUF."""
        return bool(self._view.buffer == nl.sbuf)

    def is_hbm(self) -> bool:
        """Whether the tensor lies in device memory."""
        return is_hbm_buffer(self._view)

    def has_dynamic_access(self) -> bool:
        """Whether an index of the view is known at run time only."""
        return bool(self._view.is_indirect())

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> TensorView:
        """Elements `start` to `end`, exclusive, of a dimension; an end beyond it is its own end."""
        return self._of(self._view.slice(dim, start, min(end, self.shape[dim]), step))

    def permute(self, dims: tuple[int, ...]) -> TensorView:
        """The dimensions in another order; that of partitions stays first."""
        return self._of(self._view.permute(tuple(dims)))

    def broadcast(self, dim: int, size: int) -> TensorView:
        """A dimension of size 1, repeated."""
        return self._of(self._view.broadcast(dim, size))

    def reshape_dim(self, dim: int, shape: tuple[int, ...]) -> TensorView:
        """One dimension as several; one of the sizes may be -1."""
        return self._of(self._view.reshape_dim(dim, tuple(shape)))

    def flatten_dims(self, start_dim: int, end_dim: int) -> TensorView:
        """Several dimensions, both ends included, as one."""
        return self._of(self._view.flatten_dims(start_dim, end_dim))

    def expand_dim(self, dim: int) -> TensorView:
        """A new dimension of size 1."""
        return self._of(self._view.expand_dim(dim))

    def squeeze_dim(self, dim: int) -> TensorView:
        """Without a dimension of size 1."""
        return self._of(self._view.squeeze_dim(dim))

    def select(self, dim: int, index: Any) -> TensorView:
        """One index of a dimension, which disappears; a tensor ``(1, 1)`` in SBUF selects at run time."""
        return self._of(self._view.select(dim, index))

    def vector_select(self, dim: int, vector_offset: Any) -> TensorView:
        """For each partition the row of dimension 0 that its index in SBUF says."""
        return self._of(self._view.vector_select(dim, vector_offset))

    def rearrange(
        self, src_pattern: tuple[Any, ...], dst_pattern: tuple[Any, ...], fixed_sizes: dict[str, int] | None = None
    ) -> TensorView:
        """Dimensions split, reordered and merged by name: ``(("p", ("h", "w")), ("p", "w", "h"), {"h": 4})``."""
        return self._of(self._view.rearrange(src_pattern, dst_pattern, fixed_sizes))

    def reshape(self, new_shape: tuple[int, ...]) -> TensorView:
        """Another shape of the same elements in the same order.

        Raises:
            KernelAssertion: another number of elements, another number of partitions, or elements that do not lie one
                behind the other (``nkilib.argument``).
        """
        shape = tuple(new_shape)
        kernel_assert(prod(self.shape) == prod(shape), f"reshape: size mismatch, {self.shape} to {shape}")
        kernel_assert(
            self.is_hbm() or shape[0] == self.shape[0], f"reshape: the partition dim of {self.shape} stays, not {shape}"
        )
        try:
            return self._of(self._view.reshape(shape))
        except errors.NkiError as refused:
            kernel_assert(False, f"reshape: non-contiguous layout, {self.shape} to {shape}: {refused}")
            raise

    def reinterpret_cast(self, new_dtype: Any) -> TensorView:
        """The bytes read as another dtype; the last dimension grows or shrinks by the ratio of the sizes."""
        return self._of(self._view.view(new_dtype))

    def _of(self, view: Any) -> TensorView:
        made = TensorView(self)
        made._view = view
        return made
