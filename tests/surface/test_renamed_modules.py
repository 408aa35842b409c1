"""Modules that were called like functions: old imports, new ones, and no module that a function hides again."""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from scripts.figures.names import collisions
from scripts.figures.tree import sources

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = ["collectives", "isa", "language", "profiling", "ranks", "runtime", "store.artifact", "tune"]
"""Packages whose modules users import, beside nki itself."""

ORDERS = {
    "an old module, then nki": (
        "import nki.profile.record as r\nimport nki\nassert r.Profile is nki.profiling.record.Profile",
        ["nki.profile.record is now nki.profiling.record"],
    ),
    "nki, then an old module": (
        "import nki\nnki.profile(k), nki.jit(k)\nfrom nki.profile.record import Profile\nfrom nki.jit import Kernel",
        ["nki.profile.record is now nki.profiling.record", "nki.jit.Kernel is now nki.kernel.Kernel"],
    ),
    "an old class first": (
        "from nki.jit import Kernel\nimport nki.kernel\nassert Kernel is nki.kernel.Kernel",
        ["nki.jit.Kernel is now nki.kernel.Kernel"],
    ),
    "from the old package": (
        "from nki.profile import record\nimport nki.profiling.record as r\nassert r is record",
        ["nki.profile.record is now nki.profiling.record"],
    ),
    "new modules, then old ones": (
        "import nki.kernel as new\nimport nki.profiling.record as r\nimport nki.profile.record\nimport nki.jit as j\n"
        "assert j is nki.jit and nki.profile.record is r and j(k).__class__ is new.Kernel",
        ["nki.profile.record is now nki.profiling.record"],
    ),
    "new ones alone": (
        "import nki.kernel as new\nimport nki.profiling.record as r\nassert new.Kernel and r.Profile",
        [],
    ),
}

PROGRAM = """
import json, warnings


def k(a):
    return a


with warnings.catch_warnings(record=True) as notes:
    warnings.simplefilter("always")
    {}
import nki
assert type(nki.profile).__name__ == type(nki.jit).__name__ == "function"
assert type(nki.jit(k)).__name__ == "Kernel" and type(nki.profile(k)).__name__ == "Profiler"
print(json.dumps([[str(n.message), n.category.__name__, n.filename] for n in notes]))
"""


@pytest.mark.parametrize("order", ORDERS)
def test_old_imports_work_in_any_order(order: str) -> None:
    statements, expected = ORDERS[order]
    code = PROGRAM.format(statements.replace("\n", "\n    "))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[text, "DeprecationWarning", "<string>"] for text in expected]


@pytest.mark.parametrize("name", ["nki.profile.nothing", "nki.jit.nothing"])
def test_a_module_that_never_was_is_not_there(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=name):
        importlib.import_module(name)


@pytest.mark.parametrize("package", ["nki", *(f"nki.{name}" for name in PUBLIC)])
def test_no_public_package_hides_one_of_its_modules(package: str) -> None:
    """Neither by a function of the same name, as `nki.jit` did, nor by a class or a value."""
    outer = importlib.import_module(package)
    names = [found.name for found in pkgutil.iter_modules(outer.__path__) if not found.name.startswith("__")]
    assert names
    for name in names:
        exported = vars(outer).get(name)
        assert exported is None or exported is importlib.import_module(f"{package}.{name}"), f"{package}.{name}"


def test_no_package_at_all_binds_the_name_of_its_module_to_something_else() -> None:
    assert collisions(sources(ROOT)) == []
