"""The tables of a profile: names, columns, types, units and meaning; the folder on disk has exactly these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

FORMAT = "nki-profile"
VERSION = 3
"""The version of the folder. It grows with every change of a table or of ``profile.json``. Readers take their own."""

Kind = Literal["int", "float", "text", "bool"]


class Column(NamedTuple):
    """A column: int is int64, float is float64 (always finite), text is UTF-8 without nulls."""

    name: str
    kind: Kind
    unit: str
    text: str


_CORE = Column("core", "int", "", "core of the launch, from 0")

INSTRUCTIONS = (
    Column("id", "int", "", "row number; other tables point to it"),
    _CORE,
    Column("position", "int", "", "in the compiled program of the core, loop bodies once"),
    Column("opcode", "text", "", "instruction as kernels call it: nisa.tensor_tensor"),
    Column("name", "text", "", "name= of the kernel, or empty"),
    Column("engine", "text", "", "tensor, vector, scalar, gpsimd, sync or dma"),
    Column("queue", "text", "", "the engine, or dma0, dma1, ..."),
    Column("operands", "text", "", "tensor operands: dst=x:float32[128, 512]@sbuf ..."),
    Column("turn_ns", "float", "ns", "when its queue was ready for it"),
    Column("start_ns", "float", "ns", "when it started; of a transfer: when its trigger did"),
    Column(
        "move_ns",
        "float",
        "ns",
        "when a transfer's data began to move, or the multiplication of a matmul; else start_ns",
    ),
    Column("end_ns", "float", "ns", "when it left its unit, or the last byte arrived"),
    Column("visible_ns", "float", "ns", "when other queues could see the result"),
    Column("wait_ns", "float", "ns", "start_ns - turn_ns: how long its queue stood still for it"),
    Column("wait_kind", "text", "", "the binding constraint, see below; empty if it did not wait"),
    Column("wait_for", "int", "", "id of the instruction that it waited for, or -1"),
    Column("wait_text", "text", "", "the same in words, with the memory that is shared"),
    Column(
        "slow_ns", "float", "ns", "beyond its time on an idle core: shared bandwidth, earlier transfers, Tensor's clock"
    ),
    Column("table_ns", "float", "ns", "of the wait: loading of an activation table"),
    Column("cost_ns", "float", "ns", "work on its own unit, without what the circumstances add"),
    Column("runs", "float", "", "how often it runs; the times are those of its first run"),
    Column("loop", "int", "", "number of the innermost device loop around it, or -1"),
    Column("critical_ns", "float", "ns", "its part of the critical path"),
    Column("hbm_read_bytes", "int", "bytes", "one run; the same for the next five"),
    Column("hbm_write_bytes", "int", "bytes", ""),
    Column("sbuf_read_bytes", "int", "bytes", ""),
    Column("sbuf_write_bytes", "int", "bytes", ""),
    Column("psum_read_bytes", "int", "bytes", ""),
    Column("psum_write_bytes", "int", "bytes", ""),
    Column("flops", "float", "", "one run; multiply-add is 2, an element-wise operator 1 for each element"),
    Column(
        "transpose_flops", "float", "", "of a transpose on Tensor, as a matmul with an identity matrix; it has no flops"
    ),
    Column("source", "int", "", "id of its line in sources, or -1"),
    Column("kernel", "int", "", "number of the kernel of the model in kernels, or -1"),
)

EDGES = (
    _CORE,
    Column("producer", "int", "", "id of the instruction that comes first"),
    Column("consumer", "int", "", "id of the instruction that depends on it"),
    Column("kind", "text", "", "flow, anti, output, register, state, schedule or order"),
    Column("what", "text", "", "what both touch: memory, partitions and bytes; a register; other state"),
    Column(
        "gap_ns", "float", "ns", "from the visible result of the producer to the start of the consumer; may be negative"
    ),
    Column("binding", "bool", "", "whether the consumer's start was set by it"),
    Column("signal", "bool", "", "whether the consumer waits for a signal (semaphore) of the producer"),
)

DMA = (
    _CORE,
    Column("instruction", "int", "", "id"),
    Column("queue", "text", "", "dma0, dma1, ..."),
    Column("trigger", "text", "", "unit that starts it: sync, scalar, gpsimd, or empty"),
    Column("trigger_ns", "float", "ns", "start of the trigger"),
    Column("issued_ns", "float", "ns", "the unit that started it could go on"),
    Column("start_ns", "float", "ns", "data begin to move"),
    Column("end_ns", "float", "ns", "last byte"),
    Column("nbytes", "int", "bytes", "payload"),
    Column("descriptors", "int", "", "pieces that are contiguous on both sides"),
    Column("bytes_per_ns", "float", "bytes/ns", "achieved, the same as GB/s"),
    Column("source_memory", "text", "", "hbm, sbuf or psum"),
    Column("destination_memory", "text", "", "hbm, sbuf or psum"),
    Column("variable", "text", "", "name of the tensor in HBM, or of the destination"),
)

COUNTERS = (
    _CORE,
    Column("counter", "text", "", "name, see below"),
    Column("time_ns", "float", "ns", "from when on the value holds; ascending within a counter"),
    Column("value", "float", "", "in the unit of the counter"),
)

MEMORY = (
    _CORE,
    Column("name", "text", "", "of the tensor"),
    Column("region", "text", "", "sbuf, psum, private_hbm or shared_hbm"),
    Column("shape", "text", "", "[128, 512]"),
    Column("dtype", "text", "", "float32"),
    Column("partition", "int", "", "first partition, or -1 if it has no place"),
    Column("partitions", "int", "", "how many; 1 in HBM"),
    Column("address", "int", "bytes", "in each partition, or -1"),
    Column("nbytes", "int", "bytes", "in each partition"),
    Column("first_ns", "float", "ns", "start of the first instruction that touches it"),
    Column("last_ns", "float", "ns", "visible result of the last one"),
    Column("source", "int", "", "id of the line that made it, or -1"),
)

SOURCES = (
    Column("id", "int", "", "row number"),
    Column("file", "text", "", "as Python names it; a reader of the folder never opens it"),
    Column("function", "text", "", "function that the line is in"),
    Column("line", "int", "", "from 1"),
    Column("column", "int", "", "from 0, in characters"),
    Column("end_column", "int", "", "0 if unknown"),
    Column("parent", "int", "", "id of the call that led there, always smaller; -1 in the kernel itself"),
    Column("text", "text", "", "the line, without what surrounds it"),
)

LOOPS = (
    _CORE,
    Column("loop", "int", "", "number on the core, an outer loop before those in it"),
    Column("parent", "int", "", "number of the loop around it, or -1"),
    Column("first", "int", "", "position of its first instruction"),
    Column("after", "int", "", "position after its last one"),
    Column("trips", "float", "", "each time that it is entered"),
    Column("assumed", "bool", "", "nothing tells the trips; they are taken to be 1"),
    Column("start_ns", "float", "ns", "start of the first trip"),
    Column("trip_ns", "float", "ns", "first trip with the barrier after it"),
    Column("steady_ns", "float", "ns", "the same of a later trip, once trips are alike; 0 without a trip"),
    Column("end_ns", "float", "ns", "end of the last trip"),
)

PATH = (
    _CORE,
    Column("start_ns", "float", "ns", "intervals of a core follow each other without gaps"),
    Column("end_ns", "float", "ns", "the last one ends at the makespan"),
    Column("kind", "text", "", "see below"),
    Column("instruction", "int", "", "id, or -1"),
)

TIME = (
    _CORE,
    Column("track", "text", "", "an engine or a DMA queue; dma is all DMA queues together"),
    Column("category", "text", "", "busy, idle, barrier, or a kind of waiting"),
    Column("ns", "float", "ns", "all trips; the categories of a track add up to the makespan of the core"),
)

KERNELS = (
    _CORE,
    Column("kernel", "int", "", "number of the call, one after the other over all cores"),
    Column("name", "text", "", "of the kernel; calls of one kernel have one name"),
    Column("module", "int", "", "id of the innermost module in modules, or -1"),
    Column("operation", "text", "", "what the framework calls it, or empty"),
    Column("share", "float", "", "of the kernel's time, from 0 to 1; the shares of a call add up to 1"),
    Column("read_share", "float", "", "the same of the bytes that it reads from HBM"),
    Column("write_share", "float", "", "the same of the bytes that it writes there"),
)

MODULES = (
    Column("id", "int", "", "row number"),
    Column("path", "text", "", "as the framework writes it; empty for the model itself"),
    Column("class", "text", "", "name of its class, or empty"),
    Column("parent", "int", "", "id of the module that called it, always smaller; -1 for none"),
)

TABLES: Mapping[str, tuple[Column, ...]] = {
    "instructions": INSTRUCTIONS,
    "edges": EDGES,
    "dma": DMA,
    "counters": COUNTERS,
    "memory": MEMORY,
    "sources": SOURCES,
    "loops": LOOPS,
    "path": PATH,
    "time": TIME,
    "kernels": KERNELS,
    "modules": MODULES,
}

WAITS: Mapping[str, str] = {
    "signal": "a signal of another queue; the edge of the same pair says for which data",
    "unit": "its unit was busy for an instruction of another queue",
    "port": "the port to SBUF or PSUM was held by another engine",
    "operand": "the result of an earlier instruction of the same queue was not in memory yet",
    "table": "an activation table was loaded",
    "core": "the other core",
    "trigger": "of a DMA queue: the transfer was being started",
    "queue": "of a DMA queue: the transfer before it was moving",
}

PATHS: Mapping[str, str] = {
    "run": "an instruction works on its unit, or a transfer moves data",
    "latency": "from the end of an instruction until its result is visible",
    "signal": "from a visible result to the start of who waits",
    "trigger": "from the start of a trigger until data move",
    "operand": "from the end of an instruction until the next one of its queue can read the result",
    "table": "an activation table is loaded",
    "core": "waiting for the other core",
    "barrier": "all queues meet before, between and after the trips of a loop",
    "repeat": "the trips of a loop after the first one",
    "idle": "nothing that the profile knows of",
}

DEPENDENCES: Mapping[str, str] = {
    "flow": "the consumer reads what the producer wrote",
    "anti": "the consumer overwrites what the producer read: another buffer would set it free",
    "output": "the consumer overwrites what the producer wrote",
    "register": "a register of the sequencers",
    "state": "accumulator, random state, meeting of cores, or memory that is no operand",
    "schedule": "the kernel asked for this order",
    "order": "follows from other dependences, or from the order of a queue",
}

COUNTER_NAMES: Mapping[str, tuple[str, str]] = {
    "sbuf_bytes": ("bytes", "live bytes per partition of SBUF, where that is most"),
    "sbuf_partition_N": ("bytes", "live bytes per partition in the quadrant from partition N on"),
    "psum_bytes": ("bytes", "live bytes per partition of all PSUM banks"),
    "psum_bank_N": ("bytes", "live bytes per partition of bank N, for each bank that is used"),
    "hbm_bytes": ("bytes", "live bytes of the kernel's tensors in HBM"),
    "dma_bytes_per_ns": ("bytes/ns", "all transfers"),
    "hbm_read_bytes_per_ns": ("bytes/ns", "transfers that read HBM"),
    "hbm_write_bytes_per_ns": ("bytes/ns", "transfers that write HBM"),
    "dma_in_flight": ("", "transfers that move data"),
}
