"""Objects of users that are a rank, and those that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.language as nl
from nki import collectives as ncc
from nki.core.errors import DivergenceError, LaunchError
from nki.ranks import use


class Other:
    """A rank of two whose partner brings what `answer` makes of the meeting."""

    def __init__(self, rank: Any = 0, size: Any = 2, answer: Any = None) -> None:
        self.rank, self.size, self._answer = rank, size, answer

    def meet(self, meeting: Any) -> Any:
        return self._answer(meeting)


@nki.simulate
def total(a: Any) -> Any:
    result = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    ncc.all_reduce([a], [result], ncc.ReplicaGroup([[0, 1]]), nl.add)
    return result


@pytest.mark.parametrize("own", [None, object(), Other(rank=2), Other(rank=-1), Other(rank="0"), Other(size=None)])
def test_what_is_no_rank(own: Any) -> None:
    with pytest.raises(LaunchError) as caught, use(own):
        pass
    assert caught.value.code == "ranks.communicator"


@pytest.mark.parametrize("brought", [None, 0, 1, 3])
def test_a_meeting_brings_one_value_of_each_rank(brought: int | None) -> None:
    answer = (lambda meeting: None) if brought is None else (lambda meeting: [meeting.value] * brought)
    with pytest.raises(DivergenceError) as caught, use(Other(answer=answer)):
        total(np.ones((4, 8), np.float32))
    assert caught.value.code == "ranks.values" and caught.value.location.frames[0].file == __file__


def test_a_rank_of_the_user_meets() -> None:
    a = np.ones((4, 8), np.float32)
    with use(Other(answer=lambda meeting: [meeting.value, meeting.value])):
        assert (total(a) == 2).all()
