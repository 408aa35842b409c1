"""What ``import nki`` costs: no framework, no MLIR, hardly any time."""

import sys

import pytest
from tests.packaging.building import REPOSITORY, run

LOADED = "import sys, nki; print(*sys.modules)"


@pytest.mark.parametrize("heavy", ["torch", "jax", "jaxlib", "torch_mlir", "scipy", "rich", "click"])
def test_importing_loads_nothing_heavy(heavy: str) -> None:
    modules = run(sys.executable, "-c", LOADED, cwd=REPOSITORY).split()
    assert "numpy" in modules, "nki was not imported"
    assert not [name for name in modules if name == heavy or name.startswith(heavy + ".")]
