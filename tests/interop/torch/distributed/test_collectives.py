"""Every collective of c10d on the device, and those of kernels, in processes that torchrun starts."""

from __future__ import annotations

import re

import pytest

from tests.interop.torch.distributed.launching import torchrun


@pytest.mark.parametrize(
    "processes", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(8, marks=pytest.mark.slow)]
)
def test_collectives_give_what_numpy_gives(processes: int) -> None:
    found = torchrun("collective_cases.py", processes)
    assert found.returncode == 0, found.stderr[-4000:]
    cases = [int(number) for number in re.findall(r"rank \d+: (\d+) cases", found.stdout)]
    assert len(cases) == processes and min(cases) > 200
