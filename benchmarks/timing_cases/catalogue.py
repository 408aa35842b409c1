"""Which kernel reproduces each published point, and what is read from its timeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from benchmarks.timing_cases.public_shapes import ADAMW_COLUMNS, SILU, SWEEP, sweep_name
from benchmarks.timing_cases.runs import Run
from benchmarks.timing_cases.shapes import STREAM

CONTROL_INSTRUCTIONS = 21.0
"""Instructions that only control which the micro-benchmarks count for each engine beside the measured ones: fitted."""

Read = Callable[[Run], float]


class Reading(NamedTuple):
    """How a point is predicted: from the timeline of a case.

    Attributes:
        case: name.
        read: what is read.
        other: the case that it is divided by, if any.
        more: a case that is added, if any: of one that is launched after the first.
    """

    case: str
    read: Read
    other: str = ""
    more: str = ""

    def predicted(self, run: Callable[[str], Run], launches: int = 0) -> float:
        """What the model says; `launches` are in the measured time."""
        value = self.read(run(self.case)) + launches * run(self.case).target.timing["launch_ns"]
        if self.more:
            value += self.read(run(self.more))
        return value / self.read(run(self.other)) if self.other else value


# --- readings


def _table(run: Run) -> float:
    return run.target.timing["activation_table_load_ns"]


def _trigger(run: Run, number: int) -> float:
    """From the start of a transfer's trigger to its first byte on an idle core."""
    step = run.steps(run.at("dma_copy", number))[0]
    return step.ns + step.latency


def _after_load(run: Run) -> float:
    """From the last byte of the load to the loading of the table."""
    load, act = run.at("dma_copy"), run.at("activation")
    return float(run.line.start[act] - _table(run) - run.line.end[load])


def _before_store(run: Run) -> float:
    act, store = run.at("activation"), run.at("dma_copy", 1)
    return float(run.line.start[store] - run.line.visible[act])


def _end_to_end(run: Run) -> float:
    return float(run.line.end[run.at("dma_copy", 1)] - run.line.start[run.at("dma_copy")])


def _semaphore_to_start(run: Run) -> float:
    """Of the published static transfer: its signal is seen as late as that of a transfer."""
    return run.target.timing["dma_completion_ns"] + _trigger(run, 0)


def _pass(run: Run) -> float:
    """Start to start of the two passes of a float32 matmul, as most of them follow each other."""
    return float(np.median(np.diff(run.line.end[run.every("nc_matmul")])) / 2)


def _pass_duration(run: Run) -> float:
    multiply = run.steps(run.at("nc_matmul"))[-1]
    return multiply.ns / 2 + multiply.latency


def _load_duration(run: Run) -> float:
    load = run.steps(run.at("nc_matmul"))[0]
    return load.ns + load.latency


def _multiply_duration(run: Run) -> float:
    multiply = run.steps(run.at("nc_matmul"))[-1]
    return multiply.ns + multiply.latency


def _cold_duration(run: Run) -> float:
    """Of the first matmul of an idle engine, as its clock has it, which two published chunks show."""
    at = run.at("nc_matmul")
    load = run.steps(at)[0]
    return run.duration(at) - load.ns - load.latency


def _packets(run: Run) -> float:
    return sum(run.working(position) for position in run.every("dma_copy")) * run.times


def _data(number: int) -> Read:
    """Of the engines that carry a transfer, each."""

    def read(run: Run) -> float:
        step, timing = run.steps(run.at("dma_copy", number))[-1], run.target.timing
        return step.ns - step.skew - timing["dma_signal_ns"]

    return read


def _all_engines(run: Run) -> float:
    """From the first byte of a transfer to the last signal, the mean of load and store."""
    both = [run.steps(run.at("dma_copy", number))[-1].ns for number in (0, 1)]
    return sum(both) / 2 + run.target.timing["dma_signal_ns"]


def _rate(run: Run) -> float:
    return run.line.nbytes / run.line.busy["dma"]


def _tflops(run: Run) -> float:
    return 2e-3 * 128 * 128 * 512 * STREAM / run.active(["nc_matmul"])


def _per_instruction(name: str) -> Read:
    """As the micro-benchmark has it: time over all instructions of the engine, those that only control included."""

    def read(run: Run) -> float:
        here = run.every(name)
        return sum(run.steps(p)[0].ns for p in here) / (len(here) + CONTROL_INSTRUCTIONS)

    return read


def _each(name: str) -> Read:
    """The slope of a chain: what one more link takes."""
    return lambda run: float(
        (run.line.end[run.every(name)[-2]] - run.line.end[run.every(name)[1]]) / (len(run.every(name)) - 3)
    )


def _round_trip(run: Run) -> float:
    here = run.every("tensor_copy")
    return float((run.line.start[here[-1]] - run.line.start[here[0]]) / (len(here) - 1))


def _busy(name: str) -> Callable[[Run], float]:
    return lambda run: sum(run.steps(p)[0].ns for p in run.every(name))


def _first(name: str, number: int = 0) -> Read:
    return lambda run: run.duration(run.at(name, number))


def _kernel(run: Run) -> float:
    return run.kernel_ns


def _steady(name: str) -> Read:
    """Start to start in the second half of a stream."""

    def read(run: Run) -> float:
        ends = run.line.end[run.every(name)]
        half = len(ends) // 2
        return float((ends[-1] - ends[half]) / (len(ends) - 1 - half))

    return read


READINGS: dict[str, Reading] = {
    "dma_4x4096": Reading("load_exp_store_4", _data(0)),
    "dma_4x4096_store": Reading("load_exp_store_4", _data(1)),
    "dma_trigger_sync": Reading("load_exp_store_4", lambda run: _trigger(run, 0)),
    "dma_trigger_gpsimd_4": Reading("load_exp_store_4", lambda run: _trigger(run, 1)),
    "sem_dma_to_scalar_4": Reading("load_exp_store_4", _after_load),
    "sem_scalar_to_gpsimd": Reading("load_exp_store_4", _before_store),
    "act_exp_4096": Reading("load_exp_store_4", _first("activation")),
    "act_table_load_4": Reading("load_exp_store_4", _table),
    "dma_e2e_kernel_4x4096": Reading("load_exp_store_4", _end_to_end),
    "dma_128x128": Reading("load_exp_store_128", _data(0)),
    "dma_128x128_all": Reading("load_exp_store_128", _all_engines),
    "dma_trigger_gpsimd_128": Reading("load_exp_store_128", lambda run: _trigger(run, 1)),
    "sem_dma_to_scalar_128": Reading("load_exp_store_128", _after_load),
    "act_exp_128": Reading("load_exp_store_128", _first("activation")),
    "act_table_load_128": Reading("load_exp_store_128", _table),
    "dma_fixed": Reading("load_exp_store_4", _semaphore_to_start),
    "hwdge": Reading("plain_copy", lambda run: run.steps(run.at("dma_copy"))[0].ns),
    "rq_act_reduce": Reading("square_sum", lambda run: _table(run) + run.duration(run.at("activation_reduce"))),
    "rq_rsqrt": Reading("inverse_root", _first("activation", 1)),
    "rq_act_dequant": Reading("inverse_root", _first("activation", 1)),
    "rq_stt": Reading("scaled_rows", _first("scalar_tensor_tensor", 2)),
    "rq_stt_interval": Reading("scaled_rows", lambda run: run.interval("scalar_tensor_tensor", 2)),
    "rq_mm": Reading("scaled_rows", _cold_duration),
    "rq_absmax": Reading("largest", _first("tensor_reduce")),
    "rq_quant_ts": Reading("quantized", _first("tensor_scalar")),
    "matmul_tiled": Reading("matmul_tiled", _kernel),
    "matmul_tiled_dma_packets": Reading("matmul_tiled", _packets),
    "v2_load_duration": Reading("matmul_tiled", _load_duration),
    "matmul_hoisted": Reading("matmul_hoisted", _kernel),
    "matmul_hoisted_dma_packets": Reading("matmul_hoisted", _packets),
    "matmul_check": Reading("matmul_hoisted", _pass),
    "v3_pass_duration": Reading("matmul_hoisted", _pass_duration),
    "v3_load_duration": Reading("matmul_hoisted", _load_duration),
    "v3_vec_psum_copy": Reading("copies_and_sums", _first("tensor_copy")),
    "v5_vec_tt_psum": Reading("copies_and_sums", _first("tensor_tensor")),
    "v5_vec_copy": Reading("copies_and_sums", _first("tensor_copy", 1)),
    "act_1elem_dep": Reading("scaled_copies", lambda run: run.interval("activation", 3)),
    "act_1elem_duration": Reading("scaled_copies", _first("activation", 3)),
    "ldweights_1col": Reading("matrix_vector", _load_duration),
    "matmul_128col": Reading("matrix_vector", _multiply_duration),
    "psum_vectorize": Reading("halves", _busy("tensor_reduce"), "whole"),
    "fuse_act": Reading("separate", _busy("activation"), "fused"),
    "inf2_copy_4096": Reading("inf2_copy", _rate),
    "inf2_dependent_load": Reading("inf2_chase", _each("dma_copy")),
    "inf2_round_trip": Reading("inf2_round_trip", _round_trip),
    "inf2_tensor_fp32": Reading("inf2_tensor_fp32", _tflops),
    "inf2_tensor_bf16": Reading("inf2_tensor_bf16", _tflops),
    **{f"inf2_read_{n}": Reading(f"inf2_read_{n}", _rate) for n in (128, 2048, 4096, 32768)},
    **{f"inf2_write_{n}": Reading(f"inf2_write_{n}", _rate) for n in (128, 2048, 4096, 32768)},
    **{f"inf2_scalar_{n}": Reading(f"inf2_scalar_{n}", _per_instruction("activation")) for n in (512, 2048)},
    **{f"inf2_vector_one_{n}": Reading(f"inf2_vector_one_{n}", _per_instruction("tensor_scalar")) for n in (512, 2048)},
    **{f"inf2_vector_two_{n}": Reading(f"inf2_vector_two_{n}", _per_instruction("tensor_tensor")) for n in (512, 2048)},
    **{
        name: Reading(name, _kernel)
        for name in (
            "mamba_v1_small",
            "mamba_v1_4k",
            "mamba_v2_4k",
            "mamba_v3_512",
            *(f"mamba_v{version}_{columns}" for version in (2, 3) for columns in (1024, 2048, 4096)),
        )
    },
}
"""The points of documents and micro-benchmarks."""


def _summed(name: str, case: str = "") -> dict[str, Reading]:
    """A point that is the sum of the times of two shapes."""
    return {name: Reading(f"{case or name}_6144", _kernel, more=f"{case or name}_2048")}


PUBLIC: dict[str, Reading] = {
    **{
        name: Reading(name, _kernel)
        for name in (
            "tiled_512x256x1024",
            "tiled_4096x256x2048",
            "tiled_6144x256x4096",
            "tiled_1280x640x2560",
            "blocked_m2_n6_k16",
            "blocked_two_cores",
            "blocked_4096x512x2048",
            "blocked_4096x128x6144",
            "blocked_output_2048x256x4096",
            "blocked_output_4096x1024x512",
            "buffered_2048",
            "rmsnorm_256x4096",
            "copy_256x4096",
            "adamw_rows",
            *(f"adamw_{columns}" for columns in ADAMW_COLUMNS),
            *SILU,
            "silu_3",
            "silu_in_turns",
        )
    },
    "tiled_4096x256x2048_each": Reading("tiled_4096x256x2048", _kernel),
    "blocked_m2_n2_k8": Reading("caps_m2_n2_k8_6144", _kernel),
    "silu_sevenths_nested": Reading("silu_sevenths", _kernel),
    "rmsnorm_sum": Reading("rmsnorm_2048x4096", _kernel, more="rmsnorm_32768x128"),
    "mx_product": Reading("mx_products", _steady("nc_matmul_mx")),
    **_summed("tiled_columns_first"),
    **_summed("tiled_loads_as_sums", "tiled_sum"),
    **_summed("tiled_language"),
    **_summed("staged_sum", "staged"),
    **{name: reading for caps in SWEEP for name, reading in _summed(sweep_name(caps)).items()},
}
"""The points of public repositories."""

READINGS.update(PUBLIC)
"""Every point of points.toml."""


def _throughput(run: Run) -> float:
    """Bytes per ns of a stream of loads, from its first byte to its last."""
    here = [p for p in run.every("dma_copy") if run.steps(p)[0].unit == "gpsimd"]
    begin = run.line.start[here[0]] + _trigger(run, 0)
    return float(sum(run.steps(p)[-1].nbytes for p in here) / (run.line.end[here].max() - begin))


HOLDOUTS: dict[str, Reading] = {
    f"dma_curve_{n}": Reading(f"software_loads_{n}", _throughput, "software_loads_32768")
    for n in (256, 1024, 2048, 4096)
}
"""Points that are never fitted; those that are not listed are device times of the case of their name."""


def of_kernel(case: str) -> Reading:
    """The time of a whole kernel."""
    return Reading(case, _kernel)


VECTOR = ("tensor_tensor", "tensor_tensor_scan", "memset", "tensor_copy")


def _vector_window(run: Run) -> float:
    """Percent of the time between the first and the last instruction of Vector, but for the clearing of sums."""
    here = [p for name in VECTOR[:2] for p in run.every(name)]
    window = float(run.line.visible[here].max() - run.line.start[here].min())
    return 100 * run.active(VECTOR[:2]) / window


def _tensor_share(run: Run) -> float:
    """Percent of the time with a loading or a multiplication of Tensor."""
    return 100 * run.active(["nc_matmul"]) / run.line.makespan


def _dma_share(run: Run) -> float:
    """Percent of the time with a transfer between its first byte and its signal, which the DMA writes as well."""
    return 100 * run.active(["dma_copy"], last=True) / run.line.makespan


UTILISATIONS: dict[str, Reading] = {
    "mamba_v1_small_vec": Reading("mamba_v1_small", _vector_window),
    "mamba_v1_4k_vec": Reading("mamba_v1_4k", _vector_window),
    "mamba_v2_4k_vec": Reading("mamba_v2_4k", _vector_window),
    "mamba_v3_8192_vec": Reading("mamba_v3_8192", _vector_window),
    "matmul_tiled_tensor": Reading("matmul_tiled", _tensor_share),
    "matmul_tiled_dma": Reading("matmul_tiled", _dma_share),
    "matmul_hoisted_tensor": Reading("matmul_hoisted", _tensor_share),
    "matmul_hoisted_dma": Reading("matmul_hoisted", _dma_share),
}
"""Percent of active time."""
