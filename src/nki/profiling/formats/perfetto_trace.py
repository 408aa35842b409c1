"""A profile as a Perfetto trace: a process for each core, a track for each engine, DMA queue and counter.

Slices of one track never overlap: a matmul appears as the loading of its weights on one track and as the multiplication
on another, a transfer as its start on the unit that starts it and as its data on its queue. Signals between queues are
flows. Times are rounded to ns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from nki.profiling.errors import unwritable
from nki.profiling.formats.model_labels import kernel_facts
from nki.profiling.formats.perfetto_file import Slice, TraceFile

if TYPE_CHECKING:
    from nki.profiling.record import Profile

_FLOWS = 1 << 32
"""Numbers of flows for one profile."""
_ORDER = ("critical path", "tensor weights", "tensor", "vector", "scalar", "gpsimd", "sync", "dma", "loops")


def write_trace(profiles: Sequence[Profile], file: Path) -> None:
    """Write a ``.pftrace`` file of profiles that begin together. Raises UsageError "profile.write"."""
    try:
        with file.open("wb") as stream:
            _TraceWriter(stream).write(profiles)
    except OSError as problem:
        raise unwritable(file, problem) from problem


class _TraceWriter:
    def __init__(self, stream: BinaryIO) -> None:
        self._file = TraceFile(stream)

    def write(self, profiles: Sequence[Profile]) -> None:
        """All of them."""
        for number, profile in enumerate(profiles):
            self._profile(profile, number * _FLOWS)

    def _profile(self, profile: Profile, flows: int) -> None:
        about = profile.about
        slices = slices_of(profile, flows)
        how = "simulated" if about.is_simulation else "measured"
        for core in range(about.cores):
            process = self._file.process(f"core {core}: {about.kernel} on {about.target} ({how})")
            for rank, name in enumerate(sorted(slices[core], key=_rank)):
                self._file.track(process, name, rank, slices[core][name])
            self._counters(process, profile, core)

    def _counters(self, parent: int, profile: Profile, core: int) -> None:
        series: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for row in profile["counters"].rows():
            if row["core"] == core:
                series[row["counter"]].append((row["time_ns"], row["value"]))
        for rank, name in enumerate(sorted(series), 1000):
            self._file.counter(parent, name, rank, _unit(name), series[name])


def _unit(name: str) -> str:
    if name.endswith("_per_ns"):
        return "GB/s"
    return "transfers" if name == "dma_in_flight" else "bytes"


def _rank(name: str) -> tuple[int, int, str]:
    """Engines first, then DMA queues by number; what a queue waits for below it."""
    base, _, waits = name.partition(" waits")
    digits = base.removeprefix("dma")
    if digits.isdigit():
        return _ORDER.index("dma"), 2 * int(digits) + bool(waits or name != base), name
    return _ORDER.index(base), int(name != base), name


def slices_of(profile: Profile, flows: int = 0) -> list[dict[str, list[Slice]]]:
    """The slices of every track by core; numbers of their flows begin after `flows`."""
    found: list[dict[str, list[Slice]]] = [defaultdict(list) for _ in range(profile.about.cores)]
    transfers = {row["instruction"]: row for row in profile["dma"].rows()}
    begun, ends = _flows(profile, flows)
    kernels = kernel_facts(profile)
    matmuls: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in profile["instructions"].rows():
        if not row["runs"]:
            continue
        tracks, number = found[row["core"]], row["id"]
        name = row["opcode"].removeprefix("nisa.")
        whole = Slice(
            row["move_ns"],
            row["end_ns"],
            name,
            row["engine"],
            _facts(profile, row, kernels),
            begun[number],
            ends[number],
        )
        if number in transfers:
            _transfer(tracks, whole, row, transfers[number])
        else:
            tracks[row["engine"]].append(whole)
            if row["move_ns"] > row["start_ns"]:
                matmuls[row["core"]].append(row)
        _before_the_start(tracks, row)
    for core, rows in matmuls.items():
        found[core]["tensor weights"] = _weights(rows)
    _around(profile, found)
    return found


def _before_the_start(tracks: dict[str, list[Slice]], row: dict[str, Any]) -> None:
    """What an instruction waits for when it is its turn, and the table that it loads then."""
    if row["table_ns"]:
        start = row["start_ns"] - row["table_ns"]
        tracks[row["engine"]].append(Slice(start, row["start_ns"], "load table", "table"))
    waited = row["wait_ns"] - row["table_ns"]
    if row["wait_kind"] and waited > 0.5:
        facts = (("for", row["wait_text"]), ("instruction", row["id"]))
        turn = row["turn_ns"]
        tracks[f"{row['queue']} waits"].append(Slice(turn, turn + waited, row["wait_kind"], "wait", facts))


def _around(profile: Profile, found: list[dict[str, list[Slice]]]) -> None:
    """Loops, and the critical path."""
    opcodes = profile["instructions"]["opcode"]
    for row in profile["loops"].rows():
        start, trip, end = row["start_ns"], row["trip_ns"], row["end_ns"]
        name = f"loop {row['loop']}: {row['trips']:g} trips" + (" (assumed)" if row["assumed"] else "")
        found[row["core"]]["loops"].append(Slice(start, end, name, "loop"))
        further = f"further trips, {row['steady_ns']:.0f} ns each"
        found[row["core"]]["loops"].append(Slice(min(start + trip, end), end, further, "loop"))
    for row in profile["path"].rows():
        name = row["kind"] if row["instruction"] < 0 else f"{row['kind']}: {opcodes[row['instruction']]}"
        piece = Slice(row["start_ns"], row["end_ns"], name, "critical", (("instruction", row["instruction"]),))
        found[row["core"]]["critical path"].append(piece)


def _flows(profile: Profile, first: int) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
    """Numbers of the signals that start and end at each instruction."""
    starts: dict[int, tuple[int, ...]] = defaultdict(tuple)
    ends: dict[int, tuple[int, ...]] = defaultdict(tuple)
    for number, row in enumerate(profile["edges"].rows(), first + 1):
        if row["signal"]:
            starts[row["producer"]] += (number,)
            ends[row["consumer"]] += (number,)
    return starts, ends


def _facts(
    profile: Profile, row: dict[str, Any], kernels: Mapping[int, Mapping[str, str]]
) -> tuple[tuple[str, Any], ...]:
    names = ("name", "operands", "wait_kind", "wait_text", "runs", "flops")
    facts = [("id", row["id"]), *((name, row[name]) for name in names if row[name] not in ("", 0.0))]
    facts += [(name, row[name]) for name in row if name.endswith("_bytes") and row[name]]
    facts += list(kernels.get(row["kernel"], {}).items())
    source = row["source"]
    depth = 0
    while source >= 0 and depth < 8:
        line = profile["sources"].row(source)
        facts.append(
            ("source" if not depth else f"called from {depth}", f"{line['file']}:{line['line']} {line['text']}")
        )
        source, depth = line["parent"], depth + 1
    return tuple(facts)


def _transfer(tracks: dict[str, list[Slice]], whole: Slice, row: dict[str, Any], moved: dict[str, Any]) -> None:
    """The start on its unit, where signals end that it waits for, and the data on its queue."""
    if not moved["trigger"]:
        tracks[row["queue"]].append(whole)
        return
    tracks[row["queue"]].append(whole._replace(ends=()))
    start = Slice(
        moved["trigger_ns"], moved["issued_ns"], f"start {whole.name}", "dma", (("id", row["id"]),), (), whole.ends
    )
    tracks[moved["trigger"]].append(start)


def _weights(rows: list[dict[str, Any]]) -> list[Slice]:
    """Weights load until the multiplication begins, or until those of the next one do."""
    rows.sort(key=lambda row: row["start_ns"])
    found = []
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        end = row["move_ns"] if after is None else min(row["move_ns"], after["start_ns"])
        found.append(Slice(row["start_ns"], end, "load weights", "tensor", (("id", row["id"]),)))
    return found
