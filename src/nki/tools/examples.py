"""Where the examples are: beside the sources in a checkout, inside the package where it is installed."""

from __future__ import annotations

from pathlib import Path

import nki
from nki.tools.request import usage_error

_PACKAGE = Path(nki.__file__).resolve().parent
PLACES = (_PACKAGE / "examples", _PACKAGE.parents[1] / "examples")


def example(name: str, places: tuple[Path, ...] = PLACES) -> Path:
    """The file of an example; there is one source of each, which the wheel carries inside the package."""
    for place in places:
        if (place / name).is_file():
            return place / name
    looked = " and ".join(str(place) for place in places)
    raise usage_error("demo.example", f"there is no {name} in {looked}", "install the package again")
