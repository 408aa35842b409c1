"""What the processor can do, as /proc/cpuinfo says it, and which products follow from that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nki.native import cpu_features
from nki.native.records import move_records

LINES = {
    "Zen 4": "vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx512f avx512_bf16\n",
    "Sapphire Rapids": "vendor_id\t: GenuineIntel\nflags\t\t: fpu avx512f avx512_bf16\n",
    "Zen 3": "vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx2\n",
    "Neoverse": "CPU implementer\t: 0x41\nFeatures\t: asimd bf16\n",
    "nothing is listed": "",
}


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What was found out about this processor is asked anew, before and after."""
    remembered = (cpu_features.features, cpu_features.dots_pay, cpu_features.digest)
    for each in remembered:
        each.cache_clear()
    yield
    monkeypatch.undo()
    for each in remembered:
        each.cache_clear()


@pytest.mark.parametrize(("name", "expected"), [(name, name == "Zen 4") for name in LINES], ids=LINES)
def test_dot_products_are_used_where_they_are_faster(
    name: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_features, "_first_processor", lambda: cpu_features.parse(LINES[name]))
    assert cpu_features.dots_pay() is expected
    assert move_records.dots_pay is cpu_features.dots_pay


def test_processors_of_two_makers_have_objects_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = set()
    for text in LINES.values():
        monkeypatch.setattr(cpu_features, "_first_processor", lambda text=text: cpu_features.parse(text))
        cpu_features.features.cache_clear()
        cpu_features.digest.cache_clear()
        digests.add(cpu_features.digest())
    assert len(digests) == len(LINES)
