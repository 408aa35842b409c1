"""What DMA costs: a trigger, and the time of the payload on the DMA engines that carry it.

The elements of a transfer split into descriptors, runs that are contiguous on both sides. Each takes its engine the
time of its bytes; a short one counts as ``dma.overhead_bound_bytes``, below which the bandwidth guide lets overhead
dominate. A transfer uses one engine for every ``dma.partitions_per_engine`` partitions, and its engines begin one after
the other, the last one ``timing.dma_skew_ns`` after the first. Every engine of the core then writes a signal, also
those without data, which takes it ``timing.dma_signal_ns`` (nki-dma-overview.rst, Example 1). Other transfers can use
the engines meanwhile, and the next transfer of a queue follows on each engine as soon as that has written its signal.

Starting a transfer is a different matter. A block that generates descriptors takes ``timing.hwdge_descriptor_ns`` for
each of them beside the trigger, however many bytes they move: about 600 ns for the rows of 128 partitions, but 90 ns
for a single one. Many small transfers are bound by it. Descriptors that the host wrote do not pay it.
"""

from __future__ import annotations

from math import lcm, prod
from typing import Any

from nki.core.tensor import VectorOffset, View
from nki.spec.engine import dge_mode
from nki.spec.engine import engine as Engine
from nki.spec.step import Cost, Step
from nki.target.model import Target

_OVERVIEW = "nki/get-started/about/nki-dma-overview.rst"
_BANDWIDTH = "nki/deep-dives/nki-dma-bandwidth-guide.rst"
_TRANSPOSE = "nki/guides/architecture/trainium2_arch.rst, DMA Transpose"
_RATES = (
    "rates and latencies are those of target/calibration, fitted to published transfers; that a short descriptor costs "
    "as much as one of 256 bytes is an assumption"
)


def run_length(view: View) -> int:
    """Elements that follow each other in memory, of those that follow each other in the view."""
    shape, strides, run = view.shape, view.strides, 1
    # partitions, and rows that an index tensor chooses, lie apart
    first = 1 if view.buffer.on_chip or type(view.dynamic) is VectorOffset else 0
    for axis in range(len(shape) - 1, first - 1, -1):
        if shape[axis] != 1:
            if strides[axis] != run:
                break
            run *= shape[axis]
    return run


def _pieces(count: int, a: int, b: int) -> int:
    return count // a if a == b else count // a + count // b - count // lcm(a, b)


def engines_used(dst: View, src: View, target: Target) -> int:
    """DMA engines that carry a transfer: those of its partitions, or of device memory as many as it can keep busy."""
    dma = target.dma
    on_chip = dst if dst.buffer.on_chip else src if src.buffer.on_chip else None
    if on_chip is not None:
        needed = -(-on_chip.shape[0] // dma.partitions_per_engine)
        return needed if needed < dma.engines else dma.engines
    return max(1, min(dma.engines, src.nbytes // dma.full_rate_bytes_per_partition))


def engine_rate(dst: View, src: View, target: Target) -> float:
    """Bytes per ns of one engine in this direction."""
    if dst.buffer.on_chip is not src.buffer.on_chip:
        return target.timing["dma_read_bytes_per_ns" if dst.buffer.on_chip else "dma_write_bytes_per_ns"]
    return target.dma.engine_bytes_per_ns


def payload(dst: View, src: View) -> int:
    """Bytes that a transfer moves: as device memory has them, which bounds it, if one side casts."""
    sides = [view.dtype.itemsize for view in (dst, src) if not view.buffer.on_chip]
    return prod(src.shape) * max(sides or (dst.dtype.itemsize, src.dtype.itemsize))


def descriptors(dst: View, src: View) -> int:
    """Pieces of a transfer that are contiguous on both sides."""
    return _pieces(prod(src.shape), run_length(dst), run_length(src))


def transfer(name: str, dst: View, src: View, target: Target, share: float = 1.0, passes: float = 1.0) -> Step:
    """The data on its way, at a `share` of the copy rate; `passes` is how often the payload goes over the engines."""
    nbytes, pieces = payload(dst, src), descriptors(dst, src)
    engines = engines_used(dst, src, target)
    least = pieces * target.dma.overhead_bound_bytes
    moved = (nbytes if nbytes > least else least) * passes * _read_first(dst, nbytes / pieces, target)
    working = moved / (engines * engine_rate(dst, src, target) * share)
    return _moves(name, working, engines, nbytes, pieces, target)


def _read_first(dst: View, piece: float, target: Target) -> float:
    """2 if device memory is written in pieces of less than it writes at once: it then reads what lies around them."""
    return 1.0 if dst.buffer.on_chip or piece >= target.hbm.write_bytes else 2.0


def _moves(name: str, working: float, engines: int, nbytes: int, pieces: int, target: Target) -> Step:
    """A transfer for which some engines work so many ns each, and then all of them write their signal."""
    dma, timing = target.dma, target.timing
    skew, signal = timing["dma_skew_ns"] * (engines - 1) / (dma.engines - 1), timing["dma_signal_ns"]
    ns = working + skew
    occupied = (working * engines / dma.engines + signal) / ns if ns > 0.0 else 0.0
    return Step(name, "dma", ns, timing["dma_completion_ns"], nbytes, pieces, occupied, skew - signal)


def trigger(mode: dge_mode, engine: Engine, dst: View, src: View, target: Target) -> Step:
    """Who starts a transfer: Sync a static one, else the block or the processors that write its descriptors.

    If the kernel leaves it open, descriptors are generated where a block for it exists: the published matmul of small
    tiles (kernel-optimization.rst) issues a transfer every 604 ns, which is the time of that block for 128 rows, and no
    other part of the machine explains it. The block does not cast (nki/migration/index.rst), so that GpSimd writes the
    descriptors of a transfer that does.
    """
    timing = target.timing
    if mode is dge_mode.unknown:
        moving = not (dst.dynamic is None and src.dynamic is None)
        rows = type(dst.dynamic) is VectorOffset or type(src.dynamic) is VectorOffset
        casts = dst.dtype != src.dtype
        if rows or (moving and not target.dma.hwdge) or (casts and target.dma.hwdge):
            mode = dge_mode.swdge
        elif target.dma.hwdge:
            mode = dge_mode.hwdge
    if mode is dge_mode.swdge:
        # without a block that generates them, descriptors are written to memory, and started as static ones are
        start = 0.0 if target.dma.hwdge else timing["dma_trigger_ns"]
        return Step("DmaTrigger", "gpsimd", timing["dma_trigger_gpsimd_ns"], start)
    first_byte, instruction = timing["dma_trigger_ns"], timing["dma_trigger_instruction_ns"]
    if engine is Engine.scalar:  # its sequencer goes on while the block works
        return Step("DmaTrigger", "scalar", instruction, first_byte - instruction)
    generated = descriptors(dst, src) * timing["hwdge_descriptor_ns"] if mode is dge_mode.hwdge else 0.0
    busy = instruction + generated
    return Step("DmaTrigger", "sync", busy, max(0.0, first_byte - busy))


def _copy(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
    return trigger(a.dge_mode, engine, a.dst, a.src, target), transfer("DmaCopy", a.dst, a.src, target)


def _transposed(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
    """All engines cooperate, and what they write is contiguous again."""
    dma = target.dma
    share = dma.transpose_rate_sbuf if a.src.buffer.on_chip else dma.transpose_rate_hbm
    nbytes = a.src.nbytes
    pieces = prod(a.src.shape) // run_length(a.src)
    working = nbytes / (dma.aggregate_gbps * share)
    step = _moves("DmaTranspose", working, dma.engines, nbytes, pieces, target)
    return trigger(a.dge_mode, engine, a.dst, a.src, target), step


def _sum(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
    """Two sources at the rate of DMA compute; each further one is read as well. A single one is copied.

    The descriptors of sums at fixed addresses are written before the program starts: a published matmul whose tiles are
    sums of one source each (2,048 loads, 168 MB) takes 496 us, which is their bytes at the copy rate, and less than
    half of what generating their descriptors would take.
    """
    moving = next((view for view in a.srcs if view.dynamic is not None), None)
    fixed = moving is None and a.dst.dynamic is None
    source = a.srcs[0] if moving is None else moving
    share, passes = (target.dma.compute_rate, len(a.srcs) / 2) if len(a.srcs) > 1 else (1.0, 1.0)
    step = transfer("DmaCompute", a.dst, source, target, share, passes)
    return trigger(dge_mode.none if fixed else dge_mode.unknown, engine, a.dst, source, target), step


COPY = Cost(_copy, f"{_OVERVIEW}; {_BANDWIDTH}; nki/deep-dives/nki-dge.rst", _RATES)
"""dma_copy."""

DMA_TRANSPOSE = Cost(_transposed, _TRANSPOSE, f"the rate is reached for every shape; {_RATES}")
"""dma_transpose."""

SUMS = Cost(
    _sum,
    "nki/guides/architecture/trainium3_arch.rst, SBUF Read-Add-Write",
    f"half the copy rate is stated for two sources, more sources take in proportion; {_RATES}",
)
"""dma_compute."""


def _swap(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
    if engine is Engine.gpsimd:
        gpsimd, issue = target.gpsimd, target.issue
        start = issue.gpsimd_startup_cycles / target.engines.gpsimd.ghz
        ns = start + a.src.nbytes / gpsimd.dma_direction_gbps
        return (Step("GpSimdDma", "gpsimd", ns, issue.access_overhead_cycles / target.engines.gpsimd.ghz),)
    return trigger(dge_mode.none, engine, a.dst, a.src, target), transfer("SendReceive", a.dst, a.src, target)


SWAP = Cost(
    _swap,
    "nki/guides/architecture/trainium2_arch.rst, Gpsimd Engine",
    f"the bandwidth of GpSimd's DMA is documented, its start is not (issue.gpsimd_startup_cycles); {_RATES}",
)
"""sendrecv."""


def _print(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
    view = a.tensor
    return trigger(dge_mode.none, engine, view, view, target), transfer("DevicePrint", view, view, target)


PRINT = Cost(_print, "", "no document gives a cost; counted as a copy of the tensor to device memory")
"""device_print."""
