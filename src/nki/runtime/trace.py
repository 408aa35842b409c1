"""The system trace: what the host did, and the device's timeline, in one Perfetto file.

Spans are on tracks of one process, one for each thread and category. The device's timeline is the timing model's: it
begins where the host began to execute, and lasts as long as the device would take, not as long as the simulation took.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nki.core.errors import UsageError
from nki.core.install import install_extra
from nki.core.source import UNKNOWN
from nki.profiling.errors import unwritable
from nki.runtime import arguments
from nki.runtime.spans import Span
from nki.store.files import write_whole

if TYPE_CHECKING:
    from nki.profiling.record import Profile

_SEQUENCE = 2
_HOST = 1 << 30
"""Number of the host's process, beyond those of cores."""
_BETWEEN = 1 << 29
"""Number of the process that shows what cores send each other."""


@arguments.checked(
    spans=arguments.listed(Span), file=arguments.path, profile=arguments.having("perfetto", rule="a profile, or None")
)
def write_system_trace(spans: Sequence[Span], file: str | Path, profile: Profile | None = None) -> None:
    """Write a ``.pftrace`` file.

    Args:
        spans: what was recorded.
        profile: the device's timeline of what was executed; it starts with the first span called "execute".

    Raises:
        UsageError: "profile.write", or "profile.extra" if the package for Perfetto is missing.
    """
    file = Path(file)
    start = min((each.start for each in spans), default=0)
    executed = min((each.start for each in spans if each.name == "execute"), default=start)
    parts = [_host(spans, start)]
    if profile is not None:
        parts.append(_moved(profile, executed - start))
        parts.append(_between_cores(profile, executed - start))
    try:
        write_whole(file, b"".join(parts))
    except OSError as problem:
        raise unwritable(file, problem) from problem


def _moved(profile: Profile, delay: int) -> bytes:
    """The device's trace, some ns later."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "device.pftrace"
        profile.perfetto(written)
        trace = _protos().Trace()
        trace.ParseFromString(written.read_bytes())
    for packet in trace.packet:
        if packet.HasField("timestamp"):
            packet.timestamp += delay
    return bytes(trace.SerializeToString())


def _between_cores(profile: Profile, delay: int) -> bytes:
    """A process with a track for each core: what it sends to the other one, and where it waits for it."""
    rows = [row for row in profile["instructions"].rows() if row["opcode"] in _TOGETHER]
    if not rows:
        return b""
    spans = [
        Span(
            _TOGETHER[row["opcode"]],
            f"core {row['core']}",
            delay + round(row["start_ns"]),
            delay + round(row["end_ns"]),
            "",
            (("bytes", row["sbuf_read_bytes"]), ("waited_ns", row["wait_ns"]), ("operands", row["operands"])),
        )
        for row in rows
    ]
    return _process(spans, 0, "core to core", _BETWEEN)


_TOGETHER = {"nisa.sendrecv": "send and receive", "nisa.core_barrier": "barrier"}


def _host(spans: Sequence[Span], start: int) -> bytes:
    return _process(spans, start, "host", _HOST)


def _process(spans: Sequence[Span], start: int, name: str, number: int) -> bytes:
    """A process of the trace with a track for each thread and category of spans."""
    protos = _protos()
    trace = protos.Trace()
    process = _packet(protos, trace)
    process.sequence_flags = protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    process.first_packet_on_sequence = True
    process.track_descriptor.uuid = number
    process.track_descriptor.process.pid = number
    process.track_descriptor.process.process_name = name
    tracks: dict[tuple[str, str], int] = {}
    events: list[tuple[int, int, Span, int]] = []
    for each in sorted(spans, key=lambda each: (each.start, -each.end)):
        key = (each.thread, each.category)
        if key not in tracks:
            tracks[key] = number + 1 + len(tracks)
            described = _packet(protos, trace).track_descriptor
            described.uuid, described.parent_uuid = tracks[key], number
            described.name = f"{each.category} ({each.thread})" if each.thread else each.category
        events += [(each.start, 1, each, tracks[key]), (each.end, 0, each, tracks[key])]
    for time, begins, each, track in sorted(events, key=lambda event: event[:2]):
        _event(protos, trace, time - start, each if begins else None, track)
    return bytes(trace.SerializeToString())


def _event(protos: Any, trace: Any, time: int, began: Span | None, track: int) -> None:
    """The begin of a span, or the end of one."""
    packet = _packet(protos, trace)
    packet.timestamp = time
    packet.timestamp_clock_id = protos.BuiltinClock.BUILTIN_CLOCK_BOOTTIME
    event = packet.track_event
    event.track_uuid = track
    event.type = protos.TrackEvent.TYPE_SLICE_END if began is None else protos.TrackEvent.TYPE_SLICE_BEGIN
    if began is not None:
        event.name = began.name
        event.categories.append(began.category)
        for name, value in began.facts:
            note = event.debug_annotations.add()
            note.name = name
            setattr(note, _FIELD[type(value)], value)


_FIELD = {str: "string_value", int: "int_value", float: "double_value"}


def _packet(protos: Any, trace: Any) -> Any:
    packet = trace.packet.add()
    packet.trusted_packet_sequence_id = _SEQUENCE
    return packet


def _protos() -> Any:
    """The messages of Perfetto, which is an optional package."""
    try:
        return importlib.import_module("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    except ModuleNotFoundError:
        raise UsageError(
            "profile.extra",
            "a trace needs perfetto, which is not installed",
            rule="Perfetto's messages are an optional package",
            fix=install_extra("profile"),
            location=UNKNOWN,
        ) from None
