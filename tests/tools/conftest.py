"""Commands run in the process of the tests: what they give to a file is gone when its test ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_first_nki_for_others() -> Iterator[None]:
    """No test finds the modules ``neuronxcc`` that a command served to the file of another one."""
    kept = {name for name in sys.modules if name.partition(".")[0] == "neuronxcc"}
    finders = list(sys.meta_path)
    yield
    served = [name for name in sys.modules if name.partition(".")[0] == "neuronxcc" and name not in kept]
    for name in served:
        del sys.modules[name]
    if served:
        sys.meta_path[:] = finders
