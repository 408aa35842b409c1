"""Source locations to MLIR and back, without loss."""

from __future__ import annotations

from nki.core.source import UNKNOWN, Frame, Location
from nki.ir.mlir import Attribute, CallSiteLoc, FileLineColLoc, MlirLocation, NameLoc


class LocationWriter:
    """Locations in one context; a loop in the kernel's Python gives the same object again and again.

    A frame is ``"function"("file":line:column to end_line:end_column)`` with columns from 1, as editors count them;
    calls are ``callsite(inner at outer)``. An unknown end stays ``0:0``.
    """

    def __init__(self) -> None:
        self.unknown = MlirLocation.unknown()
        self._made: dict[int, tuple[Location, MlirLocation]] = {}
        self._frames: dict[Frame, MlirLocation] = {}

    def write(self, location: Location) -> MlirLocation:
        """The location as MLIR has it."""
        known = self._made.get(id(location))
        if known is None:
            known = self._made[id(location)] = (location, self._chain(location))
        return known[1]

    def _chain(self, location: Location) -> MlirLocation:
        frames = [self._frame(frame) for frame in location.frames]
        if not frames:
            return self.unknown
        return MlirLocation.callsite(frames[0], frames[1:]) if len(frames) > 1 else frames[0]

    def _frame(self, frame: Frame) -> MlirLocation:
        made = self._frames.get(frame)
        if made is None:
            end_column = frame.end_column + 1 if frame.end_line else frame.end_column
            place = MlirLocation.file(frame.file, frame.line, frame.column + 1, frame.end_line, end_column)
            made = self._frames[frame] = MlirLocation.name(frame.function, place)
        return made


class LocationReader:
    """Locations from one module, each made once."""

    def __init__(self) -> None:
        self._read: dict[Attribute, Location] = {}

    def read(self, location: MlirLocation) -> Location:
        """The location as the rest of the toolchain has it; what MLIR adds of its own is left out."""
        attribute = location.attr
        known = self._read.get(attribute)
        if known is None:
            frames = tuple(_frames(location))
            known = self._read[attribute] = Location(frames) if frames else UNKNOWN
        return known


def read_location(location: MlirLocation) -> Location:
    """The location of a diagnostic, which the bindings hand out without its kind."""
    for kind in (CallSiteLoc, NameLoc, FileLineColLoc):
        try:
            location = kind(location)
        except ValueError:
            continue
        return LocationReader().read(location)
    return UNKNOWN


def _frames(location: MlirLocation) -> list[Frame]:
    frames = []
    while isinstance(location, CallSiteLoc):
        frames += _frames(location.callee)
        location = location.caller
    name = ""
    if isinstance(location, NameLoc):
        name, location = location.name_str, location.child_loc
    if isinstance(location, FileLineColLoc):
        frames.append(_frame(name, location))
    return frames


def _frame(function: str, place: FileLineColLoc) -> Frame:
    end_column = place.end_col - 1 if place.end_line else place.end_col
    return Frame(place.filename, function, place.start_line, place.start_col - 1, place.end_line, end_column)
