"""Values over time for tables of the Neuron Explorer: rates, occupancy, signals."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nki.profiling.record import Profile

Row = dict[str, Any]


def _series(profile: Profile, names: tuple[str, ...]) -> Iterator[tuple[int, float, dict[str, float]]]:
    """For each core and time at which one of some counters changes, the values of all."""
    events: dict[int, list[tuple[float, str, float]]] = defaultdict(list)
    for row in profile["counters"].rows():
        if row["counter"] in names:
            events[row["core"]].append((row["time_ns"], row["counter"], row["value"]))
    for core, changes in events.items():
        now = dict.fromkeys(names, 0.0)
        changes.sort()
        for number, (time, name, value) in enumerate(changes):
            now[name] = value
            if number + 1 == len(changes) or changes[number + 1][0] > time:
                yield core, time, dict(now)


def usage(profile: Profile, *names: str) -> Iterator[Row]:
    """Rates of transfers, and what they have moved by then."""
    total: dict[int, float] = defaultdict(float)
    last: dict[int, tuple[float, float]] = {}
    for core, time, values in _series(profile, names):
        since, rate = last.get(core, (time, 0.0))
        total[core] += rate * (time - since)
        last[core] = (time, sum(values.values()))
        yield {
            "timestamp": round(time),
            "current_throughput": last[core][1] * 1e9,
            "total_transfer_bytes": round(total[core]),
            "pcore_idx": core,
        }


def hbm(profile: Profile) -> Iterator[Row]:
    """Rows of `usage` for HBM."""
    yield from usage(profile, "hbm_read_bytes_per_ns", "hbm_write_bytes_per_ns")


def sbuf(profile: Profile) -> Iterator[Row]:
    """How full SBUF is, in four of its partitions."""
    size = profile.about.hardware["sbuf_bytes_per_partition"]
    parts = tuple(f"sbuf_partition_{first}" for first in (0, 32, 64, 96))
    for core, time, values in _series(profile, parts):
        shares = {name: 100.0 * value / size for name, value in values.items()}
        yield {
            "timestamp": round(time),
            "avg_util_percent": sum(shares.values()) / len(shares),
            "pcore_idx": core,
            **{f"{name.removeprefix('sbuf_')}_util_percent": share for name, share in shares.items()},
        }


def psum(profile: Profile) -> Iterator[Row]:
    """How full the banks of PSUM are."""
    hardware = profile.about.hardware
    banks = min(8, int(hardware["psum_banks"]))
    size = hardware["psum_bytes_per_partition"] / hardware["psum_banks"]
    for core, time, values in _series(profile, tuple(f"psum_bank_{bank}" for bank in range(banks))):
        shares = {name: 100.0 * value / size for name, value in values.items()}
        yield {
            "timestamp": round(time),
            "avg_util_percent": sum(shares.values()) / len(shares),
            "pcore_idx": core,
            **{f"{name.removeprefix('psum_')}_util_percent": share for name, share in shares.items()},
        }


def allocations(profile: Profile) -> Iterator[Row]:
    """Tensors in four partitions of SBUF."""
    for row in profile["memory"].rows():
        if row["region"] != "sbuf" or row["address"] < 0:
            continue
        for first in (0, 32, 64, 96):
            if row["partition"] < first + 32 and first < row["partition"] + row["partitions"]:
                yield {
                    "start_ts": round(row["first_ns"]),
                    "end_ts": round(row["last_ns"]),
                    "start_address": row["address"],
                    "end_address": row["address"] + row["nbytes"] - 1,
                    "partition": first,
                    "tensor_name": row["name"],
                    "pcore_idx": row["core"],
                }


def semaphores(profile: Profile) -> Iterator[Row]:
    """The signals of each queue count up, one semaphore for each."""
    producers = sorted({row["producer"] for row in profile["edges"].rows() if row["signal"]})
    rows = profile["instructions"]
    given = sorted((float(rows["visible_ns"][number]), number) for number in producers)
    values: Counter[tuple[int, str]] = Counter()
    for time, number in given:
        core, queue = int(rows["core"][number]), rows["queue"][number]
        values[core, queue] += 1
        yield {
            "timestamp": round(time),
            "id": queue,
            "value": values[core, queue],
            "update_source": "AXI" if queue.startswith("dma") else queue.capitalize(),
            "update_operation_type": "sem_inc",
            "pcore_idx": core,
        }
