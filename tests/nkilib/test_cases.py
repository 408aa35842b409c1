"""The calls that benchmark, pages and tuning share: each fits its kernel, and has a name of its own."""

import inspect
from collections import Counter

from benchmarks.library.case import Case
from benchmarks.library.cases import all_cases

from nki.target import target_names
from nkilib.catalogue import CATALOGUE, kernel


def test_names_are_different() -> None:
    assert [key for key, count in Counter(case.key for case in all_cases()).items() if count > 1] == []


def test_cases_are_calls_of_kernels_in_the_catalogue() -> None:
    for case in all_cases():
        assert case.kernel in CATALOGUE, case.key
        assert case.target in target_names(), case.key
        inspect.signature(kernel(case.kernel).func).bind(**case.shapes())


def test_cases_say_what_the_least_work_is() -> None:
    for case in all_cases():
        assert case.hbm_bytes > 0, case.key
        assert case.flops >= 0, case.key
        assert case.allowed >= 0, case.key


def test_configurations_are_found_by_sizes_and_differ() -> None:
    for case in filter(_tuned, all_cases()):
        assert case.sizes, case.key
        assert len({tuple(tiles.items()) for tiles in case.tiles}) == len(case.tiles), case.key


def _tuned(case: Case) -> bool:
    return bool(case.tiles)
