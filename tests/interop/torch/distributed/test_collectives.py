"""Collectives of c10d and of kernels, divided models, and blocks of a document, in processes that torchrun starts."""

from __future__ import annotations

import re

import pytest

from tests.interop.torch.distributed.launching import torchrun

WAYS = ["DDP", "FSDP2", "TP", "pipeline", "context", "SyncBatchNorm", "PowerSGD"]


def ways(said: str) -> list[str]:
    """The ways to divide a model of which all steps were as on the CPU, as the first rank says."""
    return re.findall(r"rank 0: (.*) \d+ steps", said)


@pytest.mark.parametrize(
    "processes", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(8, marks=pytest.mark.slow)]
)
def test_collectives_give_what_numpy_gives_and_divided_models_what_the_cpu_gives(processes: int) -> None:
    found = torchrun("collective_cases.py", processes, *["few", "models", "documents"] * (processes == 2))
    assert found.returncode == 0, found.stderr[-4000:]
    cases = [int(number) for number in re.findall(r"rank \d+: (\d+) cases", found.stdout)]
    assert len(cases) == processes and min(cases) > 200
    assert ways(found.stdout) == WAYS * (processes == 2)
    documented = [int(number) for number in re.findall(r"(\d+) blocks", found.stdout)]
    assert len(documented) == 2 * (processes == 2) and all(documented)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt", "llama"])
@pytest.mark.parametrize(
    ("processes", "place", "how"),
    [(2, "device", "eager"), (2, "host", "compiled"), (4, "host", "eager")],
    ids=["operators", "compiled", "four"],
)
def test_twenty_steps_of_models_are_those_of_one_process(processes: int, place: str, how: str, kind: str) -> None:
    found = torchrun("model_cases.py", processes, place, "20", kind, how, patience=900)
    assert found.returncode == 0, found.stderr[-4000:]
    assert ways(found.stdout) == WAYS + ["FSDP2 and TP"] * (processes > 2)
