"""Many small cases in one test: pytest and its processes take longer for a test than most of these cases do."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest

from nki.sim.random import forget_random_states

Test = Callable[..., None]
Case = dict[str, Any]


def together(names: str, cases: Iterable[Any], *, by: Callable[..., str] | None = None) -> Callable[[Test], Test]:
    """As ``pytest.mark.parametrize``, but one test, which runs all cases, and raises all that fails with its values.

    For cases of some milliseconds whose names nobody selects. A fixture is the same one for all cases.

    Args:
        names: parameters, separated by commas.
        cases: values of each case; a tuple of them for several parameters.
        by: from the values of a case, its group: there is one test for each group, with this name.
    """
    parameters = [name.strip() for name in names.split(",")]
    groups: dict[str, list[Case]] = {}
    for case in cases:
        values = case if len(parameters) > 1 else (case,)
        groups.setdefault(by(*values) if by else "", []).append(dict(zip(parameters, values, strict=True)))
    if not groups:
        raise ValueError("a test without cases finds nothing")

    def decorate(test: Test) -> Test:
        @wraps(test)
        def all_of_them(**fixtures: Any) -> None:
            _run(test, groups[fixtures.pop("group") if by else ""], fixtures)

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in parameters]
        if by:
            kept.append(inspect.Parameter("group", inspect.Parameter.KEYWORD_ONLY))
        all_of_them.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return pytest.mark.parametrize("group", groups)(all_of_them) if by else all_of_them

    return decorate


def _run(test: Test, cases: list[Case], fixtures: Case) -> None:
    failed: list[BaseException] = []
    for values in cases:
        try:
            test(**fixtures, **values)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - raised again below
            error.add_note(f"where {', '.join(f'{name} is {_shown(value)}' for name, value in values.items())}")
            failed.append(error)
        forget_random_states()  # as after every test
    if failed:
        raise BaseExceptionGroup(f"{len(failed)} of {len(cases)} cases fail", failed)


def _shown(value: Any) -> str:
    return getattr(value, "__name__", None) or reprlib.repr(value)
