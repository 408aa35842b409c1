"""``nki.testing``: where a kernel leaves its reference, and what a pass of the compiler must not change.

`tap` is for kernels, so that importing this package is light. The rest is for tests of kernels and of passes, and is
loaded when it is first asked for: any legal order of a kernel or of its programs (`check_any_order`, `run_adversely`,
`Policy`), equality of programs (`differences`, `same_program`), and assembly as text (`parse_assembly`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nki.language.taps import tap

if TYPE_CHECKING:
    from nki.testing.adversary import Policy as Policy
    from nki.testing.adversary import run_adversely as run_adversely
    from nki.testing.any_order import check_any_order as check_any_order
    from nki.testing.assembly import parse as parse_assembly
    from nki.testing.equality import differences as differences
    from nki.testing.equality import same_program as same_program

__all__ = ["Policy", "check_any_order", "differences", "parse_assembly", "run_adversely", "same_program", "tap"]

_LOADED = {
    "Policy": ("nki.testing.adversary", "Policy"),
    "check_any_order": ("nki.testing.any_order", "check_any_order"),
    "differences": ("nki.testing.equality", "differences"),
    "parse_assembly": ("nki.testing.assembly", "parse"),
    "run_adversely": ("nki.testing.adversary", "run_adversely"),
    "same_program": ("nki.testing.equality", "same_program"),
}
"""Public name: module and name in it."""


def __getattr__(name: str) -> Any:
    if name not in _LOADED:
        raise AttributeError(f"module 'nki.testing' has no attribute {name!r}", name=name)
    module, inside = _LOADED[name]
    return getattr(import_module(module), inside)
