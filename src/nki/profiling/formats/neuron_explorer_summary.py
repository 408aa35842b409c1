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
    core = max(range(about.cores), key=lambda number: about.totals[number]["makespan_ns"])
    busy = {
        row["track"]: row["ns"] / 1e9
        for row in profile["time"].rows()
        if row["core"] == core and row["category"] == "busy"
    }
    row = {**_work(profile), **_transfers(profile, busy.get("dma", 0.0)), **_on_chip(profile)}
    for engine in ENGINES:
        row |= _engine(profile, engine, busy.get(engine, 0.0))
    rows = profile["instructions"]
    row["matmul_instruction_count"] = round(
        sum(float(runs) for opcode, runs in zip(rows["opcode"], rows["runs"], strict=True) if "matmul" in opcode)
    )
    return row


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


def _engine(profile: Profile, engine: str, busy: float) -> dict[str, Any]:
    """What one engine did in `busy` seconds; the start of a transfer counts as an instruction."""
    rows = profile["instructions"]
    mine = [number for number, unit in enumerate(rows["engine"]) if unit == engine]
    starts = [
        (r["issued_ns"] - r["trigger_ns"], r["instruction"]) for r in profile["dma"].rows() if r["trigger"] == engine
    ]
    lasting = (rows["end_ns"][mine] - rows["start_ns"][mine]) * rows["runs"][mine]
    return {
        f"{engine}_engine_active_time": busy,
        f"{engine}_engine_active_time_percent": _share(profile, busy),
        f"{engine}_engine_instruction_count": round(
            float(rows["runs"][[*mine, *(number for _, number in starts)]].sum())
        ),
        f"{engine}_engine_instruction_time": (float(lasting.sum()) + sum(ns * rows["runs"][n] for ns, n in starts))
        / 1e9,
    }


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
