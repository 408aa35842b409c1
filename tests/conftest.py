"""Settings that every test shares."""

import gc
import os
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

from tests.goldens import refusal

if "PYTEST_XDIST_WORKER" in os.environ:
    # One thread per worker: the workers are the parallelism, and more threads than cores slow each other down.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("NKI_THREADS", "1")

# Kernels of tests are compiled, and the user's cache is left alone; tests of the cache switch it on.
os.environ["NKI_CACHE"] = "0"

# No deadline: these machines are shared. `make test` draws the same examples every time, so that a failure is the
# change's; `make test-all` draws new ones.
settings.register_profile("quick", deadline=None, max_examples=30, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=500)
settings.load_profile("quick")


SELDOM = (50_000, 20, 20)
"""Objects between searches for garbage: with Python's own 700 they take a tenth of the time of the tests."""


COMPLETE = os.environ.get("NKI_TESTS_COMPLETE") == "1"
"""Whether everything that tests need is installed, so that one that is skipped has failed; `.ci/run` says so."""


NOT_INSTALLED = "is not installed"
"""In the reason for which a test is skipped that needs a program."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    return _complete((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    return _complete((yield))


def _complete(report: Any) -> Any:
    if report.skipped and not hasattr(report, "wasxfail"):
        path, _, reason = report.longrepr
        if COMPLETE:
            report.outcome, report.longrepr = "failed", f"{reason}: nothing may be skipped here"
        elif NOT_INSTALLED in reason:  # one line for all of them
            report.longrepr = (os.path.dirname(path), 1, reason)
    return report


def pytest_configure() -> None:
    """Goldens are not written where nobody reads the difference."""
    if said := refusal(os.environ):
        raise pytest.UsageError(said)


def pytest_collection() -> None:
    """Python does not look for garbage while modules are imported and tests are made: all of it stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What is there now is never looked at again, so that a search for garbage costs what a test made."""
    gc.freeze()
    gc.set_threshold(*SELDOM)
    gc.enable()


@pytest.fixture(autouse=True)
def _generators_of_nobody() -> Generator[None]:
    """No test goes on with random states that another one has set."""
    from nki.sim.random import forget_random_states

    yield
    forget_random_states()


@pytest.fixture(autouse=True, scope="session")
def _patterns_of_the_package() -> Generator[None]:
    """Models are compiled with the patterns of this package: whether its library is installed decides nothing."""
    from nki.graph.patterns import registry

    entries = registry._entries

    def without_library(path: tuple[str, ...]) -> dict[str, Any]:
        found = entries(path)
        return {name: each for name, each in found.items() if not each[0].value.startswith("nkilib.")}

    registry._entries = without_library  # type: ignore[assignment]
    yield
    registry._entries = entries
