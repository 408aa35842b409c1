"""Commands run in the process of the tests: what they give to a file is gone when its test ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _nothing_for_other_files() -> Iterator[None]:
    """No test finds what a command gave to the file of another one: modules ``neuronxcc``, and the file's folder."""
    kept = {name for name in sys.modules if name.partition(".")[0] == "neuronxcc"}
    finders, path = list(sys.meta_path), list(sys.path)
    yield
    sys.path[:] = path
    served = [name for name in sys.modules if name.partition(".")[0] == "neuronxcc" and name not in kept]
    for name in served:
        del sys.modules[name]
    if served:
        sys.meta_path[:] = finders
