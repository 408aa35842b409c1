"""All cases, in the order in which they are begun, and how one of them is run in a process of its own."""

from __future__ import annotations

import os
import warnings
from functools import cache

from scripts.replaying import kernels, models, refused
from scripts.replaying.case import Case, Found


@cache
def cases() -> dict[str, Case]:
    """By name; those that take long come first."""
    found = [*models.cases(), *kernels.cases(), *refused.cases()]
    made = {case.name: case for case in found}
    if len(made) < len(found):
        raise AssertionError("two cases have one name")
    return made


def clean_environment() -> None:
    """What the processes that run cases inherit: no setting of the user's, no cache, one thread each."""
    for name in [name for name in os.environ if name.startswith(("NKI_", "NEURON_"))]:
        del os.environ[name]
    os.environ |= {"NKI_CACHE": "0", "NKI_THREADS": "1", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}


def run(name: str) -> tuple[Found, str]:
    """The aspects of a case, or why there are none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return cases()[name].run(), ""
    except Exception as error:  # noqa: BLE001  whatever a change broke is an answer
        return {}, f"{type(error).__name__}: {error}"
