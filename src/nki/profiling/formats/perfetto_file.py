"""A Perfetto trace: processes, tracks of slices and counters, and flows between slices.

Slices of one track never overlap. Times are rounded to ns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, BinaryIO, NamedTuple

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import BuiltinClock, TracePacket, TrackDescriptor, TrackEvent
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

_SEQUENCE = 1
_FIRST_PROCESS = 1


class Slice(NamedTuple):
    """An interval of a track, with what starts and ends there and what the UI shows about it."""

    start: float
    end: float
    name: str
    category: str
    facts: tuple[tuple[str, Any], ...] = ()
    flows: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()


class TraceFile:
    """A trace that is being written."""

    def __init__(self, stream: BinaryIO) -> None:
        """Nothing is written yet."""
        self._builder = StreamingTraceProtoBuilder(stream)
        self._tracks = 1 << 20
        self._processes = _FIRST_PROCESS
        self._began = False

    def _packet(self, time: float | None = None) -> TracePacket:
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        if not self._began:
            packet.sequence_flags = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
            packet.first_packet_on_sequence = True
            self._began = True
        if time is not None:
            packet.timestamp = round(time)
            packet.timestamp_clock_id = BuiltinClock.BUILTIN_CLOCK_BOOTTIME
        return packet

    def process(self, name: str) -> int:
        """A group of tracks; its number."""
        number = self._processes
        self._processes += 1
        packet = self._packet()
        described = packet.track_descriptor
        described.uuid = number
        described.process.pid = number
        described.process.process_name = name
        described.child_ordering = TrackDescriptor.EXPLICIT
        self._builder.write_packet(packet)
        return number

    def _new_track(self, parent: int, name: str, rank: int) -> TracePacket:
        self._tracks += 1
        packet = self._packet()
        packet.track_descriptor.uuid = self._tracks
        packet.track_descriptor.parent_uuid = parent
        packet.track_descriptor.name = name
        packet.track_descriptor.sibling_order_rank = rank
        return packet

    def track(self, parent: int, name: str, rank: int, slices: Iterable[Slice]) -> None:
        """A track of a process, at a place among its others."""
        self._builder.write_packet(self._new_track(parent, name, rank))
        for each in sorted(slices, key=lambda each: (each.start, each.end)):
            packet = self._packet(each.start)
            event = packet.track_event
            event.type = TrackEvent.TYPE_SLICE_BEGIN
            event.track_uuid = self._tracks
            event.name = each.name
            event.categories.append(each.category)
            event.flow_ids.extend(each.flows)
            event.terminating_flow_ids.extend(each.ends)
            for key, value in each.facts:
                note = event.debug_annotations.add()
                note.name = key
                if isinstance(value, str):
                    note.string_value = value
                elif isinstance(value, int):
                    note.int_value = value
                else:
                    note.double_value = value
            self._builder.write_packet(packet)
            packet = self._packet(each.end)
            packet.track_event.type = TrackEvent.TYPE_SLICE_END
            packet.track_event.track_uuid = self._tracks
            self._builder.write_packet(packet)

    def counter(self, parent: int, name: str, rank: int, unit: str, values: Iterable[tuple[float, float]]) -> None:
        """A track of times and values."""
        packet = self._new_track(parent, name, rank)
        packet.track_descriptor.counter.unit_name = unit
        self._builder.write_packet(packet)
        for time, value in values:
            packet = self._packet(time)
            packet.track_event.type = TrackEvent.TYPE_COUNTER
            packet.track_event.track_uuid = self._tracks
            packet.track_event.double_counter_value = value
            self._builder.write_packet(packet)
