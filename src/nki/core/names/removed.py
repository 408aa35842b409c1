"""Names that are not there: the error says what to write today, or which name is close."""

from __future__ import annotations

import difflib
import dis
import re
import sys
import warnings
from collections.abc import Mapping, Sequence

from nki.core.errors import RemovedError, RemovedImportError
from nki.core.names.removed_table import TENSOR, Removed

_CLOSE = 0.7
"""How much two names have in common, of 1, if one may be a misspelling of the other."""


def missing_name(
    module: str, name: str, removed: Mapping[str, Removed]
) -> AttributeError | RemovedError | RemovedImportError:
    """The error of ``module.__getattr__(name)``: a `RemovedError` if `removed` has the name.

    For other names it is a plain AttributeError, as Python's own, with the names of the module that are close.
    ``from module import name`` turns every AttributeError into an ImportError of its own, without our text: there it is
    a `RemovedImportError`, which passes.
    """
    item = removed.get(name)
    if item is None:
        return AttributeError(f"module {module!r} has no attribute {name!r}{_close(module, name)}", name=name)
    message = f"{module}.{name} does not exist" + (f" since NKI {item.since}" if item.since else "")
    rule, source = f"{module} has the names of NKI 0.3 and later", "release-notes/components/nki.rst"
    if imported(2):
        return RemovedImportError("name.removed", message, rule=rule, source=source, fix=item.instead)
    return RemovedError("name.removed", message, rule=rule, source=source, fix=item.instead)


def missing_attribute(shown: str, on_chip: bool, name: str, names: Sequence[str]) -> AttributeError:
    """The error of ``tensor.name``.

    Args:
        shown: the tensor in messages.
        on_chip: whether functions of nki.language take it as it is.
        name: what it does not have.
        names: what it has.
    """
    if name in TENSOR:
        return RemovedError(
            "tensor.attribute",
            f"{shown} has no {name!r}",
            rule="functions of nki.language and instructions compute with tensors",
            fix=TENSOR[name] if on_chip else re.sub(r"\bnl\.(\w+)\(tensor", r"nl.\1(nl.load(tensor)", TENSOR[name]),
        )
    close = difflib.get_close_matches(name, names, n=2, cutoff=_CLOSE)
    told = f"; did you mean {' or '.join(close)}?" if close else ""
    return AttributeError(f"'NkiTensor' object has no attribute {name!r}{told}", name=name)


_IMPORT_FROM = dis.opmap["IMPORT_FROM"]


def imported(depth: int = 1) -> bool:
    """Whether a name is asked for by ``from module import name``, and not read as an attribute.

    Args:
        depth: how many calls ago somebody asked the module's ``__getattr__``, or what called it.
    """
    frame = sys._getframe(depth)
    while frame.f_code.co_name == "__getattr__" and frame.f_back is not None:  # nki.lang asks nki.language
        frame = frame.f_back
    return frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM


def _close(module: str, name: str) -> str:
    if name.startswith("__"):  # Python asks for these of every module
        return ""
    close = difflib.get_close_matches(name, sys.modules[module].__all__, n=2, cutoff=_CLOSE)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def warn_deprecated(name: str, instead: str, calls: int = 2) -> None:
    """A DeprecationWarning at the place that reads ``module.name``, so many calls ago."""
    warnings.warn(f"{name} is deprecated; use {instead}", DeprecationWarning, stacklevel=1 + calls)
