"""What a search is told beside the candidates: how far it goes, and who asks the timing model."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from nki.core.errors import LaunchError
from nki.core.shown import shown


@dataclass(frozen=True, slots=True)
class Settings:
    """The arguments of `nki.autotune` of these names.

    Raises:
        LaunchError: one that cannot be, or two that exclude each other (``tune.argument``, ``tune.executor``).
    """

    budget: int | None = None
    tolerance: float | None = None
    processes: int | None = None
    timeout: float | None = None
    executor: Executor | None = None

    def __post_init__(self) -> None:
        tolerance, timeout = self.tolerance, self.timeout
        _check("budget", self.budget, _counts(self.budget), "a number from 1, or None")
        _check(
            "tolerance",
            tolerance,
            tolerance is None or (_is_number(tolerance) and 0 <= tolerance < 1),
            "from 0, or None",
        )
        _check("processes", self.processes, _counts(self.processes), "from 1, or None")
        _check("timeout", timeout, timeout is None or (_is_number(timeout) and timeout > 0), "seconds, or None")
        if self.executor is not None:
            self._check_executor(self.executor)
        elif timeout is not None and self.processes == 1:
            raise _both("timeout", "processes=1", "only a process of its own can be ended", "leave processes out")

    @property
    def of_search(self) -> tuple[int | None, float | None]:
        """What the result depends on."""
        return self.budget, self.tolerance

    def _check_executor(self, executor: Any) -> None:
        if not isinstance(executor, Executor):
            meant = "client.get_executor()" if hasattr(executor, "get_executor") else "ProcessPoolExecutor(4)"
            raise LaunchError(
                "tune.executor",
                f"nki.autotune(executor={shown(executor)})",
                rule="an executor is a concurrent.futures.Executor",
                fix=f"write executor={meant}",
            )
        if self.processes is not None:
            raise _both("executor", "processes", "an executor has its own number of workers", "leave processes out")
        if self.timeout is not None:
            rule = "calls of an executor are ended by its own limits, if it has any"
            raise _both("executor", "timeout", rule, "leave one of them out")


def _counts(value: Any) -> bool:
    return value is None or (type(value) is int and value >= 1)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _check(name: str, value: Any, well: bool, rule: str) -> None:
    if not well:
        raise LaunchError(
            "tune.argument",
            f"nki.autotune({name}={shown(value)})",
            rule=f"{name} is {rule}",
            fix=f"leave {name} out for the default",
        )


def _both(one: str, other: str, rule: str, fix: str) -> LaunchError:
    return LaunchError("tune.argument", f"nki.autotune got both {one} and {other}", rule=rule, fix=fix)
