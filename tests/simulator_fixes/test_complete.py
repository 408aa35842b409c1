"""Every item of the table has its test, and every test its item."""

from __future__ import annotations

import inspect
from types import ModuleType

from tests.simulator_fixes import test_fixes_0_4, test_fixes_0_5, test_fixes_0_6, test_verifier_rules
from tests.simulator_fixes.table import FIXES, RULES
from tests.together import together

MODULES = {"0.4.0": test_fixes_0_4, "0.5.0": test_fixes_0_5, "0.6.0": test_fixes_0_6}
ITEMS = [
    *((name, text, MODULES[version]) for version, items in FIXES.items() for name, text in items.items()),
    *((name, text, test_verifier_rules) for name, text in RULES.items()),
]


@together("name, text, module", ITEMS)
def test_item_has_a_test(name: str, text: str, module: ModuleType) -> None:
    assert callable(getattr(module, f"test_{name}"))
    assert text


def test_all_23_corrections_are_there() -> None:
    assert {version: len(items) for version, items in FIXES.items()} == {"0.4.0": 9, "0.5.0": 4, "0.6.0": 10}
    assert len({name for items in FIXES.values() for name in items}) == 23


def test_no_test_is_without_an_item() -> None:
    names = {name for name, _, _ in ITEMS}
    for module in (*MODULES.values(), test_verifier_rules):
        tests = inspect.getmembers(module, inspect.isfunction)
        assert {name for name, _ in tests if name.startswith("test_")} <= {f"test_{name}" for name in names}
