"""The tables of one row of the Neuron Explorer: `Summary` and `Metadata`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nki.profiling.formats.executed import LOAD, Part, executed
from nki.profiling.formats.neuron_explorer_transfers import packets, tensors
from nki.profiling.intervals import length, union
from nki.version import version

if TYPE_CHECKING:
    from nki.profiling.record import Profile

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")


def summary(profile: Profile) -> dict[str, Any]:
    """One row for all cores: times in seconds, of the slowest core; counts and bytes added up."""
    about = profile.about
    core = max(range(about.cores), key=lambda number: about.totals[number]["makespan_ns"])
    busy = {
        row["track"]: row["ns"] / 1e9
        for row in profile["time"].rows()
        if row["core"] == core and row["category"] == "busy"
    }
    parts = executed(profile)
    row = {**_work(profile), **_transfers(profile, busy.get("dma", 0.0)), **_origins(profile), **_on_chip(profile)}
    for engine in ENGINES:
        row |= _engine(profile, [part for part in parts if part.engine == engine], engine, busy.get(engine, 0.0))
    row |= _some(profile, parts, "matmul", "MATMUL") | _some(profile, parts, "activate", "ACTIVATE")
    row.pop("matmul_instruction_time")  # no column of the schema
    moving = [(dma["start_ns"], dma["end_ns"]) for dma in profile["dma"].rows()]
    active = length(union([*moving, *((part.start, part.end) for part in parts)])) / 1e9
    return row | {"total_active_time": active, "total_active_time_percent": _share(profile, active)}


def _work(profile: Profile) -> dict[str, Any]:
    """Operations and bytes of device memory, and how near they are to what the hardware can do."""
    about, seconds = profile.about, _seconds(profile)
    peak = about.hardware["peak_tflops"]["bfloat16"] * 1e12 * about.cores
    flops, transposes = _total(profile, "matmul_flops"), _total(profile, "transpose_flops")
    moved = _moved(profile)
    return {
        "total_time": seconds,
        "total_exec_time": seconds,
        "neuroncore_cycle_count": round(about.makespan_ns * about.hardware["base_ghz"]),
        "hardware_flops": flops + transposes,
        "model_flops": flops,
        "transpose_flops": transposes,
        "mm_arithmetic_intensity": flops / moved if moved else 0.0,
        "peak_flops_bandwidth_ratio": peak / _rate(profile),
        "mfu_estimated_percent": 100.0 * flops / (peak * seconds) if seconds else 0.0,
        "hfu_estimated_percent": 100.0 * (flops + transposes) / (peak * seconds) if seconds else 0.0,
        "hbm_read_bytes": _total(profile, "hbm_read_bytes"),
        "hbm_write_bytes": _total(profile, "hbm_write_bytes"),
    }


def _transfers(profile: Profile, busy: float) -> dict[str, Any]:
    """What the DMA engines did in `busy` seconds."""
    seconds, count, amount = _seconds(profile), _total(profile, "transfers"), _total(profile, "dma_bytes")
    return {
        "dma_active_time": busy,
        "dma_active_time_percent": _share(profile, busy),
        "dma_transfer_count": count,
        "dma_transfer_total_bytes": amount,
        "dma_transfer_average_bytes": amount / count if count else 0.0,
        "dma_queue_count": len({(r["core"], r["queue"]) for r in profile["dma"].rows()}),
        "mbu_estimated_percent": 100.0 * _moved(profile) / (_rate(profile) * seconds) if seconds else 0.0,
    }


def _on_chip(profile: Profile) -> dict[str, Any]:
    """Bytes that instructions read from SBUF and PSUM, and write there."""
    rows, names = profile["instructions"], ("sbuf_read", "sbuf_write", "psum_read", "psum_write")
    return {f"{name}_bytes": round(float((rows[f"{name}_bytes"] * rows["runs"]).sum())) for name in names}


def _engine(profile: Profile, parts: list[Part], engine: str, busy: float) -> dict[str, Any]:
    """What one engine did in `busy` seconds; the start of a transfer counts as an instruction."""
    name = f"{engine}_engine"
    return {
        f"{name}_active_time": busy,
        f"{name}_active_time_percent": _share(profile, busy),
        f"{name}_instruction_count": _count(profile, parts),
        f"{name}_instruction_time": _time(profile, parts),
    }


def _some(profile: Profile, parts: list[Part], name: str, opcode: str) -> dict[str, Any]:
    """Instructions of an opcode and those that are named after it."""
    found = [part for part in parts if part.opcode.startswith(opcode) and part.what != LOAD]
    return {f"{name}_instruction_count": _count(profile, found), f"{name}_instruction_time": _time(profile, found)}


def _count(profile: Profile, parts: list[Part]) -> int:
    runs = profile["instructions"]["runs"]
    return round(sum(float(runs[part.id]) for part in parts))


def _time(profile: Profile, parts: list[Part]) -> float:
    """Seconds of all trips; overlapping instructions are added up."""
    runs = profile["instructions"]["runs"]
    return sum((part.end - part.start) * float(runs[part.id]) for part in parts) / 1e9


def _origins(profile: Profile) -> dict[str, Any]:
    """Transfers by who wrote their descriptors: the compiler, software or hardware; and the sizes of tensors."""
    runs, found = profile["instructions"]["runs"], list(packets(profile))
    sizes = [float(runs[row["packet_aggregation_id"]]) * row["transfer_bytes"] for row in found]
    counts = [float(runs[row["packet_aggregation_id"]]) for row in found]
    made: dict[str, Any] = {"dma_packet_time": _lasting(found, counts)}
    made["dma_transfer_time"] = float(sum(row["end_ns"] - row["start_ns"] for row in profile["dma"].rows())) / 1e9
    for origin, kinds in _ORIGINS.items():
        mine = [at for at, row in enumerate(found) if row["queue_type"] in kinds]
        active = length(union([(found[at]["start_ts"], found[at]["end_ts"]) for at in mine])) / 1e9
        values = {
            "active_time": active,
            "active_time_percent": _share(profile, active),
            "packet_count": round(sum(counts[at] for at in mine)),
            "size": round(sum(sizes[at] for at in mine)),
            "packet_percent": _percent(sum(counts[at] for at in mine), sum(counts)),
            "size_percent": _percent(sum(sizes[at] for at in mine), sum(sizes)),
        }
        left = ("active_time", "packet_count", "size") if origin == "dynamic" else ()
        made |= {f"{origin}_dma_{name}": value for name, value in values.items() if name not in left}
    kept = {row["variable_name"]: row for row in tensors(profile)}.values()
    made["inputs_and_weights_size_bytes"] = sum(row["size"] for row in kept if row["type"] == "IN")
    made["inputs_outputs_weights_size_bytes"] = sum(row["size"] for row in kept if row["type"])
    return made


_ORIGINS = {
    "static": ("data", "input", "output", "instruction"),
    "dynamic": ("software_dynamic", "hardware_dynamic"),
    "software_dynamic": ("software_dynamic",),
    "hardware_dynamic": ("hardware_dynamic",),
}


def _lasting(rows: list[dict[str, Any]], counts: list[float]) -> float:
    return sum(row["duration_ns"] * count for row, count in zip(rows, counts, strict=True)) / 1e9


def _percent(part: float, whole: float) -> float:
    return 100.0 * part / whole if whole else 0.0


def _seconds(profile: Profile) -> float:
    return profile.about.makespan_ns / 1e9


def _share(profile: Profile, seconds: float) -> float:
    """Percent of the time of the kernel."""
    whole = _seconds(profile)
    return 100.0 * seconds / whole if whole else 0.0


def _total(profile: Profile, name: str) -> int:
    """A number of all cores."""
    return round(sum(each[name] for each in profile.about.totals))


def _moved(profile: Profile) -> int:
    """Bytes between device memory and the chip."""
    return _total(profile, "hbm_read_bytes") + _total(profile, "hbm_write_bytes")


def _rate(profile: Profile) -> float:
    """Bytes per second that all DMA engines can move."""
    return float(profile.about.hardware["dma_bytes_per_ns"] * 1e9 * profile.about.cores)


def metadata(profile: Profile, schema_version: str) -> dict[str, Any]:
    """What the profile is about; nothing of a machine, because there was none."""
    about, hardware = profile.about, profile.about.hardware
    return {
        "profile_schema_version": schema_version,
        "ntff_version": 0,
        "num_physical_cores": about.cores,
        "vnc_enabled": about.cores > 1,
        "first_hw_timestamp": 0,
        "last_hw_timestamp": round(about.makespan_ns),
        "first_ts": "1970-01-01 00:00:00+00:00",
        "last_ts": "1970-01-01 00:00:00+00:00",
        "dma_ddr_bandwidth": hardware["dma_bytes_per_ns"] * 1e9,
        "num_dma_engines_per_neuroncore": int(hardware["dma_engines"]),
        "hbm_ddr_bandwidth": hardware["hbm_bytes_per_ns"] * 1e9,
        "tensor_engine_num_rows": int(hardware["pe_rows"]),
        "tensor_engine_num_cols": int(hardware["pe_columns"]),
        "tensor_engine_clock_freq": hardware["ghz"]["tensor"],
        "vector_engine_clock_freq": hardware["ghz"]["vector"],
        "vector_engine_num_channels": int(hardware["lanes"]["vector"]),
        "scalar_engine_clock_freq": hardware["ghz"]["scalar"],
        "scalar_engine_num_channels": int(hardware["lanes"]["scalar"]),
        "gpsimd_engine_clock_freq": hardware["ghz"]["gpsimd"],
        "gpsimd_engine_num_channels": int(hardware["lanes"]["gpsimd"]),
        "neuroncore_clock_freq": hardware["base_ghz"],
        "ticks_per_nanosec": 1,
        "compiler_version": version(),
        "profile_name": about.kernel,
        "is_simulation": True,
    }
