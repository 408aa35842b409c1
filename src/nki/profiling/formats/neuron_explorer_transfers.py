"""Rows of the Neuron Explorer about transfers and what depends on what: DMA packets, collectives, flows, tensors."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nki.core.dtypes import BY_NAME
from nki.profiling.formats.neuron_explorer_instructions import SPELLED, interval
from nki.profiling.formats.opcodes import Operand, operands_of

if TYPE_CHECKING:
    from nki.profiling.record import Profile

Row = dict[str, Any]
_QUEUE_TYPES = {"gpsimd": "software_dynamic", "sync": "hardware_dynamic", "scalar": "hardware_dynamic"}
_DEPENDENCE = {"flow": "FLOW_DEPENDENCE", "anti": "ANTI_DEPENDENCE", "output": "OUTPUT_DEPENDENCE"}
INSTRUCTION, TRANSFER = "Instruction", "DmaPacketAggregated"
"""Tables that flows point to."""

_UNKNOWN_TEXTS = (
    "read_sbuf_partitions",
    "read_shape",
    "read_offset",
    "read_steps",
    "write_sbuf_partitions",
    "write_shape",
    "write_offset",
    "write_steps",
)
"""Required, and not known for a transfer as a whole."""


def transfers(profile: Profile) -> Iterator[Row]:
    """`DmaPacketAggregated`: a transfer as a whole."""
    rows, roles = profile["instructions"], _roles(profile)
    for dma in profile["dma"].rows():
        yield {
            **interval(dma["start_ns"], dma["end_ns"]),
            **_moved(dma, dma["nbytes"]),
            "id": dma["instruction"],
            "pcore_idx": dma["core"],
            "block_id": dma["instruction"],
            "op": "write" if dma["destination_memory"] == "hbm" else "read",
            "source": f"[[{_memory(dma, 'source', roles)}]]",
            "dest": f"[{_memory(dma, 'destination', roles)}]",
            "semaphore_id": dma["queue"],
            **{name: "" for name in _UNKNOWN_TEXTS},
            "read_num_sbuf_partitions": 0,
            "write_num_sbuf_partitions": 0,
            "is_transpose_mode": "transpose" in rows["opcode"][dma["instruction"]],
            "trigger": round(dma["trigger_ns"]),
            "completion": round(dma["issued_ns"]),
        }


def packets(profile: Profile) -> Iterator[Row]:
    """`DmaPacket`: the equal part of a transfer that each DMA engine moves; single descriptors are not modelled."""
    engines, number = int(profile.about.hardware["dma_engines"]), 0
    for dma in profile["dma"].rows():
        count = max(1, min(engines, dma["descriptors"], dma["nbytes"]))
        for engine in range(count):
            nbytes = dma["nbytes"] * (engine + 1) // count - dma["nbytes"] * engine // count
            yield {
                **interval(dma["start_ns"], dma["end_ns"]),
                **_moved(dma, nbytes),
                "pcore_idx": dma["core"],
                "id": number,
                "packet_idx": engine,
                "packet_aggregation_id": dma["instruction"],
                "engine_idx": engine,
                "crc": 0,
            }
            number += 1


def _moved(dma: Mapping[str, Any], nbytes: int) -> Row:
    """What packets and transfers have in common."""
    moving = dma["end_ns"] - dma["start_ns"]
    return {
        "queue_idx": int(dma["queue"].removeprefix("dma")),
        "queue_name": dma["queue"],
        "queue_type": _QUEUE_TYPES.get(dma["trigger"], "data"),
        "variable": dma["variable"],
        "read_bytes": nbytes,
        "write_bytes": nbytes,
        "transfer_bytes": nbytes,
        "throughput": nbytes / moving * 1e9 if moving else 0.0,
    }


def _memory(dma: Mapping[str, Any], end: str, roles: Mapping[tuple[int, str], str | None]) -> str:
    """A memory; device memory by what its tensor is for, which is known of the one that the transfer names."""
    memory = dma[f"{end}_memory"]
    if memory != "hbm":
        return {"sbuf": "SB", "psum": "PSUM", "": ""}[memory]
    named = end == "source" or dma["source_memory"] != "hbm"
    role = roles.get((dma["core"], dma["variable"])) if named else None
    return {"IN": "INPUT", "OUT": "OUTPUT"}.get(role or "", "DRAM")


def _roles(profile: Profile) -> dict[tuple[int, str], str | None]:
    """Whether tensors in device memory are inputs or results: what nobody writes, and what is shared and written."""
    shared = {(row["core"], row["name"]): row["region"] == "shared_hbm" for row in profile["memory"].rows()}
    written: set[tuple[int, str]] = set()
    for row in profile["instructions"].rows():
        if row["hbm_write_bytes"]:
            names = row["operands"].partition("dst=")[2].lstrip("(")
            written.add((row["core"], names.partition(":")[0]))
    return {key: "OUT" if key in written and kept else None if key in written else "IN" for key, kept in shared.items()}


def tensors(profile: Profile) -> Iterator[Row]:
    """`TensorInfo`: tensors in device memory and how often they are loaded."""
    loads: dict[tuple[int, str], list[int]] = defaultdict(list)
    for row in profile["dma"].rows():
        if row["source_memory"] == "hbm" and row["destination_memory"] == "sbuf":
            loads[row["core"], row["variable"]].append(row["nbytes"])
    roles = _roles(profile)
    for row in profile["memory"].rows():
        if row["region"] in ("sbuf", "psum"):
            continue
        mine = loads[row["core"], row["name"]]
        size = row["nbytes"] * row["partitions"]
        yield {
            "variable_name": row["name"],
            "type": roles[row["core"], row["name"]],
            "shape": row["shape"],
            "size": size,
            "pcore_idx": row["core"],
            "load_to_sbuf_avg_size_bytes": sum(mine) // len(mine) if mine else 0,
            "load_to_sbuf_total_size_bytes": sum(mine),
            "load_to_sbuf_dma_count": len(mine),
            "load_to_sbuf_repeat_factor": sum(mine) / size if size else 0.0,
        }


def flows(profile: Profile) -> Iterator[Row]:
    """`Flow`: from who starts a transfer to its data, and every dependence between instructions."""
    moved = {row["instruction"]: bool(row["trigger"]) for row in profile["dma"].rows()}
    for dma in profile["dma"].rows():
        if dma["trigger"]:
            yield {
                "in_id": dma["instruction"],
                "out_id": dma["instruction"],
                "in_table": INSTRUCTION,
                "out_table": TRANSFER,
                "dependency_type": "DGE_TRIGGER",
                "gap_time": round(dma["start_ns"]) - round(dma["issued_ns"]),
            }
    for row in profile["edges"].rows():
        yield {
            "in_id": row["producer"],
            "out_id": row["consumer"],
            "in_table": TRANSFER if row["producer"] in moved else INSTRUCTION,
            "out_table": INSTRUCTION if moved.get(row["consumer"], True) else TRANSFER,
            "dependency_type": _DEPENDENCE.get(row["kind"], f"{row['kind'].upper()}_DEPENDENCE"),
            "gap_time": round(row["gap_ns"]),
        }


def collectives(profile: Profile) -> Iterator[Row]:
    """`CcOp`: collectives; the model has one algorithm, of which the schema's document does not speak."""
    rows, number = profile["instructions"], 0
    for dma in profile["dma"].rows():
        row = rows.row(dma["instruction"])
        package, _, name = row["opcode"].rpartition(".")
        if not package.endswith("collectives"):
            continue
        operands = operands_of(row["operands"])
        sent = [each for each in operands if each.name.startswith("src")] or operands
        got = [each for each in operands if each.name.startswith("dst")] or operands
        sizes = _nbytes(sent), _nbytes(got)
        ns = dma["end_ns"] - dma["start_ns"]
        yield {
            **interval(dma["start_ns"], dma["end_ns"]),
            "operation": "".join(word.capitalize() for word in name.split("_")),
            "algorithm": "unknown",
            "num_elements": sum(math.prod(each.shape) for each in sent),
            "dtype": sent[0].dtype if sent else "unknown",
            "op_id": number,
            "stream_id": 0,
            "stream_index": 0,
            "trigger_engine": SPELLED.get(dma["trigger"], ""),
            "input_size": sizes[0],
            "output_size": sizes[1],
            "algorithm_bandwidth": max(sizes) / ns * 1e9 if ns else 0.0,
            "trigger_start_ts": round(dma["trigger_ns"]),
            "cc_trigger_start_delay": round(dma["start_ns"]) - round(dma["trigger_ns"]),
        }
        number += 1


def _nbytes(operands: list[Operand]) -> int:
    return sum(math.prod(each.shape) * BY_NAME[each.dtype].itemsize for each in operands if each.dtype in BY_NAME)
