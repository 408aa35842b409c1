"""`NkiTensor`: what a kernel holds, a view of storage with methods that make other views."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

import numpy as np

from nki.core import access, reshape
from nki.core.calls import misfit, spelled
from nki.core.dims import as_int, as_ints
from nki.core.dtypes import DType, as_dtype
from nki.core.errors import ArgumentError, FrontendError, TensorError
from nki.core.names.removed import missing_attribute
from nki.core.no_arithmetic import NoArithmetic
from nki.core.pattern import check_inside
from nki.core.pattern import pattern as explicit_pattern
from nki.core.register import VirtualRegister
from nki.core.shown import shown
from nki.core.source import here, text_of
from nki.core.tensor import MemoryRegion, NKIObject, Storage, View, contiguous_strides, whole

_new = object.__new__

Method = TypeVar("Method", bound=Callable[..., Any])


def _arguments(method: Method) -> Method:
    """A call that does not fit the method's signature becomes an ArgumentError."""
    own = inspect.signature(method)
    signature = own.replace(parameters=list(own.parameters.values())[1:])

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except TypeError:
            found = misfit(signature, args[1:], kwargs)
            if found is None:
                raise
            raise ArgumentError(
                "call.method-arguments",
                f"tensor.{method.__name__} {found.message}",
                rule=f"{method.__name__}({spelled(signature)})",
                fix=found.fix,
            ) from None

    return call  # type: ignore[return-value]


class NkiTensor(NoArithmetic, NKIObject):
    """A tensor of a kernel in HBM, SBUF or PSUM.

    All methods return views of the same storage; nothing is copied. On chip dimension 0 is the partition. Python's
    operators do not compute with it: instructions and the functions of nki.language do.

    Args:
        shape: sizes, all positive.
        dtype: NKI dtype.
        storage: handle of another tensor (``other.storage``) whose bytes are seen with this shape and dtype.
        buffer: memory region of that storage.
        name: only for messages.
    """

    __slots__ = ("_index_storage", "_problem", "_view", "storage")

    assigner: ClassVar[Callable[[NkiTensor, Any], None]]
    """What ``view = value`` does: instructions, which `nki.language.assignment` knows and this module is below."""

    patterns_of_views: ClassVar[Callable[[], bool]]
    """Whether `ap` may count in the view, as it may in kernels of old versions, which are known above this module."""

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: Any,
        storage: Storage,
        buffer: MemoryRegion = MemoryRegion.sbuf,
        name: str = "",
    ) -> None:
        region = storage.buffer.region if isinstance(storage, Storage) else None
        if region is not buffer:
            raise TensorError(
                "tensor.storage",
                f"NkiTensor needs the storage of a tensor in {buffer}, not {shown(storage)}",
                fix="allocate with nl.ndarray, or pass other_tensor.storage and its buffer",
            )
        sizes = tuple(int(s) for s in shape)
        view = View(storage.buffer, as_dtype(dtype), sizes, contiguous_strides(sizes), 0)
        if view.nbytes > storage.buffer.nbytes:
            raise TensorError(
                "tensor.storage",
                f"{view.describe()} needs {view.nbytes} bytes, {name or 'the storage'} has {storage.buffer.nbytes}",
                fix="use a smaller shape",
            )
        self._view = view
        self.storage = storage
        self._index_storage: Storage | None = None
        self._problem: TensorError | None = None

    @classmethod
    def of(cls, view: View, storage: Storage) -> NkiTensor:
        """The tensor for a view of a storage."""
        tensor = object.__new__(cls)
        tensor._view = view
        tensor.storage = storage
        tensor._index_storage = None
        tensor._problem = None
        return tensor

    # --- what it is

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes in elements; on chip the first is the number of partitions."""
        return self._view.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Steps in elements; on chip ``strides[0]`` is the number of elements in one partition."""
        return self._view.strides

    @property
    def offset(self) -> int:
        """Elements from the start of the storage."""
        return self._view.offset

    @property
    def pattern(self) -> list[list[int]]:
        """``[[stride, count], ...]``, as `get_pattern`."""
        return self.get_pattern()

    @property
    def dtype(self) -> DType:
        return self._view.dtype

    @property
    def buffer(self) -> MemoryRegion:
        """The memory region."""
        return self._view.buffer.region

    @property
    def name(self) -> str:
        return self._view.buffer.name

    @property
    def address(self) -> tuple[int, int] | None:
        """``(start partition, byte offset)`` that the tensor was allocated at; None where the compiler chooses.

        Of a view it is that of the whole tensor, so that ``nl.ndarray(..., address=t.address)`` lies in the same bytes.
        """
        return self._view.buffer.address

    @property
    def ndim(self) -> int:
        return len(self._view.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._view.size

    @property
    def view_record(self) -> View:
        """The plain record of the view, without storage; a view that reaches outside its storage raises here."""
        if self._problem is not None:
            raise self._problem
        return self._view

    def describe(self) -> str:
        """Short text for messages: ``float32[128, 512] in sbuf``."""
        return self._view.describe()

    def is_contiguous(self) -> bool:
        """Row-major without gaps; on chip within each partition."""
        return access.is_contiguous(self._view)

    def is_indirect(self) -> bool:
        """True if an index that is only known at run time takes part in the address."""
        return self._view.dynamic is not None

    def get_pattern(self) -> list[list[int]]:
        """``[[stride, count], ...]`` in the order of `shape`."""
        return [[stride, count] for stride, count in zip(self._view.strides, self._view.shape, strict=True)]

    @property
    def data(self) -> NkiTensor:
        """The tensor itself, so that code for grids (`nl.tiles`) takes tensors as well."""
        return self

    @property
    def base_tensor(self) -> NkiTensor:
        """All of the tensor that this is a view of, as it was allocated.

        No document has this name; AWS's kernel library reads it of the tensors that its MX kernels are given.
        """
        return NkiTensor.of(whole(self._view.buffer), self.storage)

    # --- views

    def __getitem__(self, key: Any) -> NkiTensor:
        tensor: NkiTensor = _new(NkiTensor)
        tensor._view = access.index(self._view, key, _tensor_view)
        tensor.storage = self.storage
        tensor._index_storage = self._index_storage
        tensor._problem = self._problem
        return tensor

    @_arguments
    def slice(self, dim: int, start: int, end: int, step: int = 1) -> NkiTensor:
        """Elements `start` to `end` (exclusive) of one dimension."""
        dims = [as_int(value, role) for role, value in (("dim", dim), ("start", start), ("end", end), ("step", step))]
        return self._with(access.slice_dim(self._view, *dims))

    @_arguments
    def select(self, dim: int, index: int | NkiTensor | VirtualRegister) -> NkiTensor:
        """One index of a dimension, which disappears; a one-element tensor or a register selects at run time."""
        at = _plain(index)
        at = at if isinstance(at, View | VirtualRegister) else as_int(at, "index")
        return self._with(access.select(self._view, as_int(dim, "dim"), at), index)

    @_arguments
    def vector_select(self, dim: int, vector_offset: NkiTensor) -> NkiTensor:
        """Row p of the result is row ``vector_offset[p]`` of this HBM tensor."""
        return self._with(
            access.vector_select(self._view, as_int(dim, "dim"), _index_view(vector_offset, "vector_offset")),
            vector_offset,
        )

    @_arguments
    def indirect(self, index: NkiTensor, num_elem: int | None = None) -> NkiTensor:
        """Gather (as source) or scatter (as destination) on the free dimension by offsets in SBUF."""
        count = None if num_elem is None else as_int(num_elem, "num_elem")
        return self._with(access.indirect(self._view, _index_view(index, "index"), count), index)

    @_arguments
    def permute(self, dims: tuple[int, ...]) -> NkiTensor:
        """Reorder dimensions; on chip the partition stays first."""
        return self._with(access.permute(self._view, as_ints(dims, "dims")))

    @_arguments
    def broadcast(self, dim: int, size: int) -> NkiTensor:
        """Repeat a dimension of size 1."""
        return self._with(access.broadcast(self._view, as_int(dim, "dim"), as_int(size, "size")))

    @_arguments
    def expand_dim(self, dim: int) -> NkiTensor:
        """Insert a dimension of size 1."""
        return self._with(access.expand_dim(self._view, as_int(dim, "dim")))

    @_arguments
    def squeeze_dim(self, dim: int) -> NkiTensor:
        """Remove a dimension of size 1."""
        return self._with(access.squeeze_dim(self._view, as_int(dim, "dim")))

    @_arguments
    def reshape_dim(self, dim: int, shape: tuple[int, ...]) -> NkiTensor:
        """Split a dimension; one size may be -1."""
        return self._with(reshape.reshape_dim(self._view, as_int(dim, "dim"), as_ints(shape, "shape")))

    @_arguments
    def flatten_dims(self, start_dim: int, end_dim: int) -> NkiTensor:
        """Merge contiguous dimensions; both ends are included."""
        return self._with(reshape.flatten_dims(self._view, as_int(start_dim, "start_dim"), as_int(end_dim, "end_dim")))

    @_arguments
    def reshape(self, shape: tuple[int, ...]) -> NkiTensor:
        """Another shape of the same elements in the same order, without a copy."""
        return self._with(reshape.reshape(self._view, as_ints(shape, "shape")))

    @_arguments
    def rearrange(
        self, src_pattern: tuple[Any, ...], dst_pattern: tuple[Any, ...], fixed_sizes: dict[str, int] | None = None
    ) -> NkiTensor:
        """Split, reorder and merge dimensions by name: ``rearrange(("p", ("h", "w")), ("p", "w", "h"), {"h": 4})``."""
        return self._with(reshape.rearrange(self._view, src_pattern, dst_pattern, fixed_sizes))

    @_arguments
    def view(self, dtype: Any) -> NkiTensor:
        """This tensor's bytes read as another dtype; the last dimension grows or shrinks by the ratio of the sizes."""
        return self._with(reshape.view_as(self._view, dtype))

    reinterpret_cast = view

    @_arguments
    def ap(
        self,
        pattern: Sequence[Sequence[int]],
        offset: int | None = None,
        scalar_offset: NkiTensor | VirtualRegister | None = None,
        vector_offset: NkiTensor | None = None,
        indirect_dim: int = 0,
        dtype: Any = None,
    ) -> NkiTensor:
        """An explicit ``[[stride, count], ...]`` pattern over the storage; see `nki.core.pattern`."""
        scalar = _plain(scalar_offset)
        if not isinstance(scalar, View | VirtualRegister | None):
            scalar = _index_view(scalar, "scalar_offset")
        return self._pattern_view(
            explicit_pattern(
                self._view,
                pattern,
                None if offset is None else as_int(offset, "offset"),
                scalar,
                None if vector_offset is None else _index_view(vector_offset, "vector_offset"),
                as_int(indirect_dim, "indirect_dim"),
                dtype,
                of_view=NkiTensor.patterns_of_views(),
            ),
            scalar_offset if vector_offset is None else vector_offset,
        )

    # --- what is written into it

    def __setitem__(self, key: Any, value: Any) -> None:
        """``tensor[key] = value``: the instructions that `nki.language.assignment` issues for it."""
        NkiTensor.assigner(self[key], value)

    # --- what it is not

    def __delitem__(self, key: Any) -> NoReturn:
        raise FrontendError(
            "tensor.assignment",
            f"a part of {self.describe()} is deleted",
            rule="the shape of a tensor stays as it was allocated",
            fix="copy what is needed to a tensor of its own",
        )

    if not TYPE_CHECKING:  # so that type checkers know the attributes

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(f"'NkiTensor' object has no attribute {name!r}", name=name)
            own = [each for each in dir(self) if not each.startswith("_")]
            raise missing_attribute(self.describe(), self._on_chip(), name, own)

    def __bool__(self) -> bool:
        """A whole tensor, and any in HBM, is there, so it is true: kernels ask that of optional arguments.

        A part of a tensor on chip is asked for its values, and values have no truth.
        """
        if not self._view.on_chip or self._view.size == prod(self._view.buffer.shape):
            return True
        raise FrontendError(
            "tensor.truth",
            f"the truth of {self._view.describe()} is not known while the kernel is traced",
            fix="choose with nl.where(mask, a, b), combine masks with nl.logical_and, "
            "or loop with nl.while_loop on a register; test `tensor is None` for options",
        )

    def __len__(self) -> int:
        return self._view.shape[0]

    def __iter__(self) -> NoReturn:
        raise FrontendError(
            "tensor.iteration",
            f"{self._view.describe()} cannot be iterated",
            fix=self._loop_fix(),
        )

    def _loop_fix(self) -> str:
        if text_of(here().frame).startswith("sum("):
            return "write nl.sum(tensor, axis=1)"
        if self._view.on_chip:  # instructions start at few partitions only
            return "compute with the whole tensor at once, or loop over range(tensor.shape[1]) and index tensor[:, i]"
        return "loop over range(tensor.shape[0]) and index"

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise FrontendError(
            "tensor.numpy",
            f"{self._view.describe()} has no NumPy value while the kernel is traced",
            fix="use nki.language functions; NumPy and torch work on the host, outside the kernel",
        )

    def peek(self) -> np.ndarray:
        """A copy of the values, for a debugger: only in eager mode, and nothing for a kernel to compute with."""
        values = self.storage.values(self._view)
        if values is None:
            raise FrontendError(
                "tensor.peek",
                f"{self._view.describe()} has no values while the kernel is traced",
                fix="debug with nki.simulate(kernel)(...), or print at run time with nl.device_print",
            )
        return values

    def __repr__(self) -> str:
        values = self.storage.values(self._view)
        shown = "" if values is None else "\n" + np.array2string(values, threshold=64, precision=4)
        return f"NkiTensor({self.name}: {self._view.describe()}){shown}"

    def _on_chip(self) -> bool:
        return self._view.on_chip

    def _is_integer(self) -> bool:
        return self._view.dtype.is_integer

    def _with(self, view: View, index: Any = None) -> NkiTensor:
        """A view of the same storage; the storage of its index tensor must live as long as it does."""
        tensor = NkiTensor.of(view, self.storage)
        kept = index.storage if isinstance(index, NkiTensor) else self._index_storage
        tensor._index_storage = kept
        tensor._problem = self._problem
        return tensor

    def _pattern_view(self, view: View, index: Any) -> NkiTensor:
        """A pattern that reaches too far is refused when an instruction uses it: kernels make some they never use."""
        tensor = self._with(view, index)
        try:
            check_inside(view)
        except TensorError as problem:
            tensor._problem = problem
        return tensor


@shown.register
def _(value: NkiTensor) -> str:
    return f"a tensor {value.describe()}"


def _plain(value: Any) -> Any:
    if isinstance(value, VirtualRegister):
        return value.record
    return value.view_record if isinstance(value, NkiTensor) else value


def _index_view(value: Any, role: str) -> View:
    if isinstance(value, NkiTensor):
        return value.view_record
    raise ArgumentError(
        "access.index-tensor",
        f"{role} must be a tensor, not {shown(value)}",
        fix="load the indices into an SBUF tensor",
    )


def _tensor_view(value: Any) -> View | None:
    return value._view if isinstance(value, NkiTensor) else None
