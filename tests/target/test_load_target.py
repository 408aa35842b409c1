"""Loading target data: names and aliases, strictness, provenance, immutability."""

import dataclasses
import importlib.resources
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from nki.core.errors import TargetError
from nki.target import DEFAULT_TARGET, FEATURES, load_target, read_target, target_names

ALL = ("trn1", "trn2", "trn3", "unit")


def text_of(name: str) -> str:
    return (importlib.resources.files("nki.target") / f"{name}.toml").read_text(encoding="utf-8")


def toml_leaves(table: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for key, value in table.items():
        if "value" in value:
            yield path + key, value
        else:
            yield from toml_leaves(value, f"{path}{key}.")


def test_names_and_default() -> None:
    assert target_names() == ("trn1", "trn2", "trn3")
    assert target_names(toys=True) == ALL
    assert DEFAULT_TARGET == "trn3"


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("trn1", "trn1"), ("inf2", "trn1"), ("gen2", "trn1"), ("GEN3", "trn2"), (" Trn2 ", "trn2"), ("gen4", "trn3")],
)
def test_aliases_give_the_same_object(spelling: str, name: str) -> None:
    assert load_target(spelling) is load_target(name)
    assert load_target(spelling).name == name


@pytest.mark.parametrize("name", ["trn4", "", "trn", "trn2.tml", "../trn2"])
def test_unknown_names_list_the_known_ones(name: str) -> None:
    with pytest.raises(TargetError) as caught:
        load_target(name)
    assert caught.value.code == "target.unknown"
    assert "trn1 = inf2 = gen2, trn2 = gen3, trn3 = gen4" in caught.value.fix
    assert "unit" not in caught.value.fix


@pytest.mark.parametrize("name", ALL)
def test_every_leaf_has_one_origin(name: str) -> None:
    raw = dict(toml_leaves(tomllib.loads(text_of(name))))
    assert len(raw) > 150
    for path, leaf in raw.items():
        assert ("source" in leaf) != ("estimate" in leaf), path
        if "source" in leaf:
            assert re.fullmatch(
                r"(nki|about-neuron|tools|neuron-runtime|release-notes|github\.com/\w+)/\S+\.(rst|py|png|jpg|md)",
                leaf["source"],
            )
        else:
            assert len(leaf["estimate"]) > 2, path


@pytest.mark.parametrize("name", ALL)
def test_paths_are_attribute_paths(name: str) -> None:
    target = load_target(name)
    for path, leaf in target.leaves():
        section, _, last = path.partition(".")
        if section == "features":
            assert target.has(last) is leaf.value
        elif section == "timing":
            assert target.timing[last] == leaf.value
        else:
            value: object = target
            for part in path.split("."):
                value = getattr(value, part)
            assert value == leaf.value and type(value) is type(leaf.value), path


@pytest.mark.parametrize("name", ALL)
def test_provenance_tells_what_the_file_says(name: str) -> None:
    target = load_target(name)
    for path, raw in toml_leaves(tomllib.loads(text_of(name))):
        leaf = target.provenance(path)
        told = (leaf.source, leaf.estimate, leaf.note)
        assert told == (raw.get("source", ""), raw.get("estimate", ""), raw.get("note", ""))


def test_a_field_that_repeats_a_feature_has_its_origin() -> None:
    target = load_target("trn3")
    assert target.provenance("pe.mx") is target.provenance("features.nc_matmul_mx")


def test_unknown_questions_are_errors() -> None:
    target = load_target("trn2")
    for ask, code in (
        (lambda: target.has("hw_dge"), "target.feature"),
        (lambda: target.provenance("sbuf.size"), "target.leaf"),
        (lambda: target.engines["dma"], "target.engine"),
    ):
        with pytest.raises(TargetError) as caught:
            ask()
        assert caught.value.code == code


def test_nothing_can_be_changed() -> None:
    target = load_target("trn2")
    for owner, name in ((target, "name"), (target.psum, "banks"), (target.pe, "mx"), (target.engines.vector, "ghz")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(owner, name, 1)
    with pytest.raises(TypeError):
        target.timing["semaphore_ns"] = 0.0  # type: ignore[index]
    with pytest.raises(TypeError):
        del target.provenances["name"]  # type: ignore[attr-defined]
    assert (type(target.features), type(target.aliases)) == (frozenset, tuple)
    assert len({target, load_target("trn2"), load_target("trn3")}) == 2


BANKS = 'banks = { value = 2, estimate = "toy" }'


@pytest.mark.parametrize(
    ("replacement", "code", "words"),
    [
        ("", "target.data", "psum misses banks"),
        (BANKS + '\nbankz = { value = 2, estimate = "toy" }', "target.data", "psum has unknown bankz"),
        ("banks = 2", "target.data", "psum.banks must be { value"),
        ("banks = { value = 2 }", "target.source", "psum.banks needs a source or an estimate"),
        ('banks = { value = 2, source = "a/b.rst", estimate = "x" }', "target.source", "psum.banks needs"),
        ('banks = { value = 2, source = "somewhere" }', "target.source", "'somewhere' is no path"),
        ('banks = { value = 2, source = "/a/b.rst" }', "target.source", "'/a/b.rst' is no path"),
        ('banks = { value = 2, estimate = "x", why = "y" }', "target.data", "psum.banks has unknown why"),
        ('banks = { value = 2.0, estimate = "x" }', "target.data", "psum.banks is 2.0, not int"),
        ('banks = { value = true, estimate = "x" }', "target.data", "psum.banks is True, not int"),
        ('banks = { value = "2", estimate = "x" }', "target.data", "psum.banks is '2', not int"),
        ('banks = { value = 3, estimate = "x" }', "target.data", "psum.bytes_per_partition is 512"),
        ("banks = {", "target.toml", "is not TOML"),
    ],
)
def test_bad_data_is_refused(replacement: str, code: str, words: str) -> None:
    text = text_of("unit")
    assert text.count(BANKS) == 1
    with pytest.raises(TargetError) as caught:
        read_target(text.replace(BANKS, replacement), "mine.toml")
    assert caught.value.code == code
    assert "mine.toml" in caught.value.message and words in caught.value.message


@pytest.mark.parametrize("feature", ["hwdge", "topk"])
def test_every_feature_must_be_named(feature: str) -> None:
    assert feature in FEATURES
    kept = [line for line in text_of("trn2").splitlines() if not line.startswith(f"{feature} = ")]
    with pytest.raises(TargetError, match=f"features misses {feature}"):
        read_target("\n".join(kept), "mine.toml")


def test_integers_are_accepted_as_floats_only_where_floats_belong() -> None:
    text = text_of("unit").replace("ghz = { value = 1.0,", "ghz = { value = 1,")
    assert read_target(text, "mine.toml").engines.vector.ghz == 1.0


# --- calibrations

COEFFICIENT = 'semaphore_ns = { value = 7.0, unit = "ns", meaning = "a signal", fitted = "to two points" }'


def test_a_calibration_adds_coefficients() -> None:
    kept = [line for line in text_of("unit").splitlines() if not line.startswith("semaphore_ns")]
    target = read_target("\n".join(kept), "mine.toml", COEFFICIENT)
    assert target.timing["semaphore_ns"] == 7.0
    assert target.provenance("timing.semaphore_ns").estimate == "fitted to two points"
    assert target.provenance("timing.semaphore_ns").note == "ns"


@pytest.mark.parametrize(
    ("calibration", "words"),
    [
        (COEFFICIENT, "timing states semaphore_ns, which the calibration states too"),
        ('other_ns = { value = 7.0, unit = "ns", meaning = "", estimate = "e" }', "has unknown other_ns"),
        ('other_ns = { value = 7.0, estimate = "e" }', "misses meaning, unit"),
        ("other_ns = 7.0", "must be a table"),
    ],
)
def test_a_wrong_calibration_is_refused(calibration: str, words: str) -> None:
    with pytest.raises(TargetError) as caught:
        read_target(text_of("unit"), "mine.toml", calibration)
    assert caught.value.code == "target.data" and words in caught.value.message


def test_calibrated_coefficients_have_their_unit_and_origin() -> None:
    for name in ("trn1", "trn2", "trn3"):
        told = tomllib.loads(text_of(f"calibration/{name}"))
        target = load_target(name)
        for coefficient, leaf in told.items():
            assert leaf["unit"] and leaf["meaning"]
            assert sum(key in leaf for key in ("source", "estimate", "fitted")) == 1
            assert target.timing[coefficient] == leaf["value"]
        assert any("fitted" in leaf for leaf in told.values()) is (name != "trn3")
