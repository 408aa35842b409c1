"""What ``import nki`` costs: no framework, no MLIR, hardly any time."""

import sys

from tests.packaging.building import REPOSITORY, run

LOADED = "import sys, nki; print(*sys.modules)"


def test_importing_loads_nothing_heavy() -> None:
    modules = run(sys.executable, "-c", LOADED, cwd=REPOSITORY).split()
    assert "numpy" in modules, "nki was not imported"
    heavy = {"torch", "jax", "jaxlib", "torch_mlir", "scipy", "rich", "click"}
    assert [name for name in modules if name.partition(".")[0] in heavy] == []
