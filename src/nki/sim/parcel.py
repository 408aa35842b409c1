"""What one core sends to another, and the checks that both ends meant the same transfer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nki.core.dtypes import DType
from nki.core.errors import DivergenceError
from nki.core.tensor import View

_SOURCE = "nki/api/nki/isa sendrecv"


class Parcel(NamedTuple):
    """A tensor under way: `bits` in its shape, and its float32 values where those are kept."""

    sender: int
    to: int
    source: int
    dtype: DType
    bits: np.ndarray
    precise: np.ndarray | None


def check_route(mine: Parcel, other: Parcel) -> None:
    """Two cores that meet send to each other; given one parcel twice, check what is known before they meet."""
    swapped = mine.to == mine.source != mine.sender
    if swapped and (other is mine or (other.to == other.source == mine.sender)):
        return
    raise DivergenceError(
        "cores.route",
        f"core {mine.sender} sends to {mine.to} and receives from {mine.source}"
        + ("" if other is mine else f", core {other.sender} sends to {other.to} and receives from {other.source}"),
        rule="two cores swap: each sends to the other and receives from it",
        source=_SOURCE,
        fix="pass send_to_rank=1 - rank and recv_from_rank=1 - rank on both cores",
    )


def check_contents(taken: Parcel, dst: View) -> None:
    """What arrives has the shape and dtype of the place that waits for it."""
    if taken.dtype == dst.dtype and taken.bits.shape == dst.shape:
        return
    raise DivergenceError(
        "cores.contents",
        f"core {taken.sender} sends {taken.dtype}{list(taken.bits.shape)}, but dst is {dst.describe()}",
        rule="src on one core and dst on the other have the same shape and dtype",
        source=_SOURCE,
        fix="use the same shapes and dtypes on both cores",
    )
