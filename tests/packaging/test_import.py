"""What ``import nki`` costs: no framework, no MLIR, hardly any time."""

import sys

import pytest
from tests.packaging.building import REPOSITORY, run

MAX_SECONDS = 0.3
LOADED = "import sys, nki; print(*sys.modules)"
SECONDS = "import time; start = time.perf_counter(); import nki; print(time.perf_counter() - start)"


@pytest.mark.parametrize("heavy", ["torch", "jax", "jaxlib", "torch_mlir", "scipy", "rich", "click"])
def test_importing_loads_nothing_heavy(heavy: str) -> None:
    modules = run(sys.executable, "-c", LOADED, cwd=REPOSITORY).split()
    assert "numpy" in modules, "nki was not imported"
    assert not [name for name in modules if name == heavy or name.startswith(heavy + ".")]


def test_importing_is_quick() -> None:
    seconds = min(float(run(sys.executable, "-c", SECONDS, cwd=REPOSITORY)) for _ in range(5))
    assert seconds < MAX_SECONDS
