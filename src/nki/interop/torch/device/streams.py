"""Streams and events of the device: every call has finished when it returns, so that nothing ever waits."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import torch

from nki.core.errors import ExecutionError
from nki.interop.torch.devices import DEVICE, choose, current, index_of
from nki.interop.torch.user_location import user_line

_MILLISECONDS = 1e3


class Stream(torch.Stream):
    """``torch.neuron.Stream``: work is done in the order of the calls, on whichever stream they are made."""

    _outer: list[Stream]
    _place: torch.device

    def __new__(cls, device: object = None, priority: int = 0, **_: Any) -> Stream:
        made: Stream = super().__new__(cls, device=torch.device(DEVICE, 0), priority=priority)
        made._place = torch.device(DEVICE, index_of(device))
        made._outer = []
        return made

    def __init__(self, device: object = None, priority: int = 0, **_: Any) -> None:
        pass

    @property
    def device(self) -> torch.device:
        """The device of the stream; C++ makes all of them on the first one."""
        return self._place

    def synchronize(self) -> None:
        """Everything is done already."""

    def query(self) -> bool:
        """Whether everything is done: always."""
        return True

    def wait_event(self, event: Event) -> None:
        """Later calls come after the event: they do anyhow."""

    def wait_stream(self, stream: Stream) -> None:
        """Later calls come after those of another stream: they do anyhow."""

    def record_event(self, event: Event | None = None) -> Event:
        """An event that happens now."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        self._outer.append(current_stream())
        set_stream(self)
        return self

    def __exit__(self, *_: object) -> None:
        set_stream(self._outer.pop())

    def __repr__(self) -> str:
        return f"<torch.neuron.Stream on {self.device}>"


class Event:
    """``torch.neuron.Event``: the time of the host at which it was recorded."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self.enable_timing = enable_timing
        self.device = torch.device(DEVICE, current())
        self._time: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Happen now."""
        self._time = time.perf_counter()

    def wait(self, stream: Stream | None = None) -> None:
        """Later calls come after the event: they do anyhow."""

    def synchronize(self) -> None:
        """What came before the event is done already."""

    def query(self) -> bool:
        """Whether what came before is done: always."""
        return True

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds of the host from this event to another one, not of the device's timing model.

        Raises:
            ExecutionError: "torch.event" for an event that was not recorded, or not made with ``enable_timing=True``.
        """
        for event in (self, end):
            if event._time is None or not event.enable_timing:
                missing = "not recorded" if event._time is None else "made without timing"
                raise ExecutionError(
                    "torch.event",
                    f"elapsed_time is asked of an event that was {missing}",
                    rule="time lies between two events that were recorded and have timing",
                    source="torch.Event",
                    fix="make events with Event(enable_timing=True), and call record() on both",
                    location=user_line(),
                )
        return ((end._time or 0.0) - (self._time or 0.0)) * _MILLISECONDS

    def __repr__(self) -> str:
        return f"<torch.neuron.Event on {self.device}>"


_CURRENT: dict[int, Stream] = {}
"""The current stream of each device of the process: they order nothing, since operations run one by one."""


@cache  # the one stream of a device that is there from the beginning
def _default(index: int) -> Stream:
    return Stream(index)  # not before the device has its name


def default_stream(device: object = None) -> Stream:
    """The stream of a device that is there from the beginning."""
    return _default(index_of(device))


def current_stream(device: object = None) -> Stream:
    """The stream of a device that was set last."""
    return _CURRENT.get(index_of(device)) or _default(index_of(device))


def set_stream(stream: Stream) -> None:
    """Make a stream the current one of its device, which becomes the current one."""
    choose(stream.device.index)
    _CURRENT[stream.device.index] = stream


def stream(stream: Stream | None) -> Stream:
    """``with torch.neuron.stream(s):`` makes a stream the current one."""
    return current_stream() if stream is None else stream
