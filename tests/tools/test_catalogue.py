"""Every code that the package can print is explained."""

from __future__ import annotations

import re

import pytest

from nki.core.catalogue import CATALOGUE, close_codes, read_catalogue
from nki.tools.codes import all_codes, rule_entries
from tests.together import together
from tests.tools.codes_in_source import codes, computed


def test_the_search_finds_what_is_known_to_be_there() -> None:
    """One of each way in which a code is passed."""
    assert {
        "tensor.shape",
        "operand.region",
        "return.private-hbm",
        "memory.uninitialized",
        "target.data",
    } <= codes().keys()
    assert len(codes()) > 150


def test_no_code_is_put_together() -> None:
    """But for the rules of instructions, whose code is that of the instruction and of the rule."""
    assert {place.partition(":")[0] for place in computed()} == {"spec/verify.py"}


def test_every_code_in_the_source_is_explained() -> None:
    missing = {code: place for code, place in codes().items() if code not in all_codes()}
    assert not missing, f"add these to core/catalogue.toml: {missing}"


def test_every_explanation_belongs_to_a_code() -> None:
    assert not CATALOGUE.keys() - codes().keys(), "no code of that name is left in the source"


def test_no_rule_is_explained_twice() -> None:
    assert not CATALOGUE.keys() & rule_entries().keys()


@together("code", sorted(CATALOGUE))
def test_an_explanation_is_a_title_and_some_sentences(code: str) -> None:
    explanation = CATALOGUE[code]
    assert re.fullmatch(r"[a-z_]+\.[a-z-]+|beta1\.[a-z0-9_]+", code)
    assert not explanation.title.endswith(".")
    assert explanation.text.endswith((".", "`."))
    assert 2 <= len(re.findall(r"[.](?= |$)", explanation.text)) <= 5


def test_sections_are_sorted() -> None:
    """Within the codes of one family, so that they are easy to find and to merge."""
    families: dict[str, list[str]] = {}
    for code in CATALOGUE:
        families.setdefault(code.partition(".")[0], []).append(code)
    assert {name: codes for name, codes in families.items() if codes != sorted(codes)} == {}


def test_close_codes() -> None:
    assert close_codes("acess.step", CATALOGUE)[0] == "access.step"
    assert "tensor_tensor.shapes" in close_codes("tensortensor.shapes", all_codes())
    assert close_codes("zzzz", CATALOGUE) == []


def test_the_table_is_read_strictly() -> None:
    with pytest.raises(TypeError):
        read_catalogue('["a.b"]\ntitle = "t"\ntext = "x"\nwhat = "?"')
