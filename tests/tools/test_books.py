"""`nki explain`, `nki rules` and `nki targets` say what the declarations and the data say."""

from __future__ import annotations

import pytest

from nki.core.catalogue import CATALOGUE
from nki.spec.instruction import REGISTRY
from nki.target.load import load_target, target_names
from tests.tools.running import nki, nki_json


@pytest.mark.parametrize("code", ["tensor.assignment", "operand.start-partition", "kernel.import"])
def test_explain_a_code_of_the_catalogue(code: str) -> None:
    shown = nki("explain", code).stdout
    assert shown.startswith(f"{code}: {CATALOGUE[code].title}\n")
    assert CATALOGUE[code].text in shown


def test_explain_a_rule_with_the_numbers_of_a_target() -> None:
    shown = nki("explain", "tensor_tensor.shapes", "--target", "trn2").stdout
    assert "dst, data1, data2 have the same partitions" in shown
    assert "source: nki/api/nki/isa" in shown


@pytest.mark.parametrize(
    ("words", "environment", "name"),
    [((), "", "trn3"), ((), "trn1", "trn1"), (("--target", "trn2"), "trn1", "trn2")],
)
def test_explain_says_whose_numbers_it_shows(
    words: tuple[str, ...], environment: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", environment)
    shown = nki("explain", "tensor_tensor.shapes", *words).stdout
    assert f"with the numbers of {name} (--target NAME" in shown
    assert nki("explain", *words).stdout.splitlines()[-1].startswith(f"numbers are those of {name} ")
    assert nki_json("explain", "tensor_tensor.shapes", *words)["target"] == name


def test_explain_lists_everything() -> None:
    *lines, last = nki("explain").stdout.splitlines()
    assert last.startswith("numbers are those of ")
    codes = [line.split()[0] for line in lines]
    assert codes == sorted(codes)
    assert CATALOGUE.keys() <= set(codes)
    assert {f"{name}.{rule.code}" for name, each in REGISTRY.items() for rule in each.rules} <= set(codes)
    assert [entry["code"] for entry in nki_json("explain")] == codes


def test_an_unknown_code_is_told_close_ones() -> None:
    error = nki_json("explain", "acess.step", code=2)["error"]
    assert error["code"] == "explain.code"
    assert "access.step" in error["fix"]


@pytest.mark.parametrize("target", target_names())
def test_every_rule_is_in_the_book(target: str) -> None:
    chip = load_target(target)
    told = nki_json("rules", "--target", target)
    assert told["target"] == target
    found = {(row["instruction"], row["code"]): row for row in told["rules"]}
    for name, declared in REGISTRY.items():
        if not declared.public:
            continue
        exists = not declared.feature or chip.has(declared.feature)
        assert ((name, "instruction.unavailable") in found) is not exists
        for rule in declared.rules:
            row = found.get((name, f"{name}.{rule.code}"))
            assert (row is not None) is exists
            if row is not None:
                assert (row["severity"], row["source"]) == (rule.severity, rule.source)
                assert "{t" not in row["sentence"]


def test_the_book_as_markdown() -> None:
    lines = nki("rules", "--target", "trn2", "--markdown").stdout.splitlines()
    table = lines[2:]
    assert len(table) - 2 == len(nki_json("rules", "--target", "trn2")["rules"])
    assert {line.replace("\\|", "").count("|") for line in table} == {6}


def test_the_book_is_readable_and_complete_when_piped() -> None:
    shown = nki("rules", "--target", "trn2").stdout
    assert "tensor_tensor.shapes" in shown
    assert "\x1b" not in shown
    assert "…" not in shown


def test_targets_are_listed() -> None:
    assert [entry["name"] for entry in nki_json("targets")] == list(target_names())
    shown = nki("targets").stdout
    assert all(name in shown for name in target_names())


def test_every_value_of_a_target_has_its_origin() -> None:
    values = nki_json("targets", "gen3")["values"]
    assert values["psum.banks"]["value"] == load_target("trn2").psum.banks
    assert all(bool(leaf.get("source")) != bool(leaf.get("estimate")) for leaf in values.values())
    assert set(values) == {path for path, _ in load_target("trn2").leaves()}
    assert "psum.banks" in nki("targets", "trn2").stdout


def test_an_unknown_target() -> None:
    assert nki_json("targets", "trn9", code=2)["error"]["code"] == "target.unknown"
    assert nki_json("rules", "--target", "trn9", code=2)["error"]["code"] == "target.unknown"
