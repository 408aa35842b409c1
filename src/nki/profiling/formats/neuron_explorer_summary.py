"""The tables of one row of the Neuron Explorer: `Summary` and `Metadata`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nki.version import version

if TYPE_CHECKING:
    from nki.profiling.record import Profile

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")


def summary(profile: Profile) -> dict[str, Any]:
    """One row for all cores: times in seconds, of the slowest core; counts and bytes added up."""
    about = profile.about
    seconds = about.makespan_ns / 1e9
    core = max(range(about.cores), key=lambda number: about.totals[number]["makespan_ns"])
    busy = {
        row["track"]: row["ns"] / 1e9
        for row in profile["time"].rows()
        if row["core"] == core and row["category"] == "busy"
    }

    def total(name: str) -> int:
        return round(sum(each[name] for each in about.totals))

    def share(part: float) -> float:
        return 100.0 * part / seconds if seconds else 0.0

    peak = about.hardware["peak_tflops"]["bfloat16"] * 1e12 * about.cores
    flops, moved = total("matmul_flops"), total("hbm_read_bytes") + total("hbm_write_bytes")
    rate = about.hardware["dma_bytes_per_ns"] * 1e9 * about.cores
    row: dict[str, Any] = {
        "total_time": seconds,
        "total_exec_time": seconds,
        "neuroncore_cycle_count": round(about.makespan_ns * about.hardware["base_ghz"]),
        "hardware_flops": flops + total("transpose_flops"),
        "model_flops": flops,
        "transpose_flops": total("transpose_flops"),
        "mm_arithmetic_intensity": flops / moved if moved else 0.0,
        "peak_flops_bandwidth_ratio": peak / rate,
        "dma_active_time": busy.get("dma", 0.0),
        "dma_active_time_percent": share(busy.get("dma", 0.0)),
        "dma_transfer_count": total("transfers"),
        "dma_transfer_total_bytes": total("dma_bytes"),
        "dma_transfer_average_bytes": total("dma_bytes") / total("transfers") if total("transfers") else 0.0,
        "dma_queue_count": len({(r["core"], r["queue"]) for r in profile["dma"].rows()}),
        "mbu_estimated_percent": 100.0 * moved / (rate * seconds) if seconds else 0.0,
        "mfu_estimated_percent": 100.0 * flops / (peak * seconds) if seconds else 0.0,
        "hfu_estimated_percent": 100.0 * (flops + total("transpose_flops")) / (peak * seconds) if seconds else 0.0,
        "hbm_read_bytes": total("hbm_read_bytes"),
        "hbm_write_bytes": total("hbm_write_bytes"),
    }
    rows, started = profile["instructions"], list(profile["dma"].rows())
    for name in ("sbuf_read", "sbuf_write", "psum_read", "psum_write"):
        row[f"{name}_bytes"] = round(float((rows[f"{name}_bytes"] * rows["runs"]).sum()))
    for engine in ENGINES:
        mine = [number for number, unit in enumerate(rows["engine"]) if unit == engine]
        starts = [(r["issued_ns"] - r["trigger_ns"], r["instruction"]) for r in started if r["trigger"] == engine]
        row[f"{engine}_engine_active_time"] = busy.get(engine, 0.0)
        row[f"{engine}_engine_active_time_percent"] = share(busy.get(engine, 0.0))
        row[f"{engine}_engine_instruction_count"] = round(
            float(rows["runs"][[*mine, *(number for _, number in starts)]].sum())
        )
        lasting = (rows["end_ns"][mine] - rows["start_ns"][mine]) * rows["runs"][mine]
        row[f"{engine}_engine_instruction_time"] = (
            float(lasting.sum()) + sum(ns * rows["runs"][n] for ns, n in starts)
        ) / 1e9
    row["matmul_instruction_count"] = round(
        sum(float(runs) for opcode, runs in zip(rows["opcode"], rows["runs"], strict=True) if "matmul" in opcode)
    )
    return row


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
