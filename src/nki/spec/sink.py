"""The one context of a running kernel: where instructions go, and what the kernel may ask."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextvars import ContextVar
from types import FrameType
from typing import Protocol, TypeVar

from nki.compiler import CompileConfig
from nki.core.dtypes import DType
from nki.core.errors import FrontendError, TensorError
from nki.core.register import VirtualRegister
from nki.core.source import Locator
from nki.core.tensor import Buffer, MemoryRegion, Storage, View
from nki.options import Options
from nki.spec.program import Issued
from nki.spec.rule import Finding
from nki.spec.signature import Signature
from nki.target.model import Target

T = TypeVar("T")

_STORAGE_SINCE = "0.5"


class Sink(Protocol):
    """What traces or runs a kernel."""

    target: Target
    options: Options
    locator: Locator
    trace: Hashable
    core: int
    cores: int
    grid: bool
    eager: bool
    no_reorder_depth: int
    ordered: list[list[Issued]]
    prepared: Issued | None
    config: CompileConfig
    config_override: bool

    def issue(self, issued: Issued, signature: Signature | None = None) -> None:
        """Take the next verified instruction; `signature` says which it equals for rules and executors, if known."""

    def report(self, finding: Finding) -> None:
        """Take a broken rule: raise if it is an error, keep it if it is a warning."""

    def exceeded(self, error: TensorError) -> None:
        """Take a tensor that is larger than its memory: raise the error, or keep it as a finding and go on."""

    def allocate(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        region: MemoryRegion,
        name: str,
        address: tuple[int, int] | None,
        role: str = "temporary",
    ) -> Storage:
        """A new buffer."""

    def literal(self, shape: tuple[int, ...], dtype: DType, data: bytes) -> Storage:
        """A tensor in HBM that holds these bytes from the start of the program."""

    def constant(self, key: Hashable) -> Storage | None:
        """A tensor that was made before under this key, for constants that need to be built once."""

    def keep_constant(self, key: Hashable, storage: Storage) -> None:
        """Remember it for `constant`."""

    def unfollowed(self, reason: str) -> None:
        """Note that the kernel read something that may be another thing the next time: it is traced again then."""

    def register(self) -> VirtualRegister:
        """A new register."""

    def for_loop(
        self,
        lower: int | VirtualRegister,
        upper: int | VirtualRegister,
        step: int,
        body: Callable[[VirtualRegister], None],
    ) -> None:
        """A loop on the device."""

    def for_statement(
        self, lower: int | VirtualRegister, upper: int | VirtualRegister, step: int, frame: FrameType
    ) -> Iterator[VirtualRegister]:
        """The iterator of a ``for`` statement that runs on the device; `frame` is the one that executes it."""

    def while_loop(self, condition: VirtualRegister, body: Callable[[VirtualRegister], VirtualRegister]) -> None:
        """A loop on the device that ends when the register is 0."""

    def depend(self, consumer: Issued, producers: Sequence[Issued]) -> None:
        """`consumer` runs after every producer, whatever is reordered."""

    def tap(self, name: str, view: View) -> None:
        """The values that a view has now, for whoever compares them; nothing while there are none."""

    def buffers(self) -> list[Buffer]:
        """All allocations so far."""


_CURRENT: ContextVar[Sink | None] = ContextVar("nki_sink", default=None)
"""Where instructions go that are called in this context: a kernel calls them without a way to hand it on."""


def active_sink() -> Sink | None:
    """The sink of the running kernel, or None on the host."""
    return _CURRENT.get()


class _Host:
    """What is asked outside of kernels, where no launch says it."""

    target: Callable[[], Target]


def answer_on_the_host(target: Callable[[], Target]) -> None:
    """Install what tells the target of questions outside of kernels: options and their default lie above this layer."""
    _Host.target = staticmethod(target)


def current_target() -> Target:
    """The target of the running kernel; on the host the one that calls without a target of their own get."""
    sink = _CURRENT.get()
    return _Host.target() if sink is None else sink.target


def current_sink(what: str) -> Sink:
    """The sink of the running kernel; `what` names the function that needs one."""
    sink = _CURRENT.get()
    if sink is None:
        raise FrontendError(
            "kernel.outside",
            f"{what} was called outside a kernel",
            fix="call it in a function decorated with @nki.jit, and call that function, or nki.simulate(function)(...)",
        )
    return sink


def counts_in_views() -> bool:
    """Whether `NkiTensor.ap` may count in the view, not in the tile: in kernels written for NKI 0.4 and before.

    nki/deep-dives/nki-aps.rst: a pattern is applied to the tensor, flattened (Neuron 2.29); it "addresses the tensor's
    underlying storage", whichever view it is called on (2.31, which has NKI 0.5).
    """
    sink = _CURRENT.get()
    return sink is not None and sink.options.api < _STORAGE_SINCE


def with_sink(sink: Sink, run: Callable[[], T]) -> T:
    """Run with `sink` as the current one."""
    token = _CURRENT.set(sink)
    try:
        return run()
    finally:
        _CURRENT.reset(token)
