"""Compiled programs as the cache keeps them: the same program, whoever vouches for the bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from nki.asm.encode import encode
from nki.asm.lower import lower
from nki.core.errors import ArtifactError
from nki.store.archive import write_tar
from nki.store.outline import outlined, outlines
from nki.store.programs import pack_programs, unpack_programs
from nki.target.load import load_target
from tests.asm.compiled import compiled, loops, replaced, summed


@pytest.mark.parametrize("own", [False, True])
def test_programs_come_back(own: bool) -> None:
    for program in (compiled(loops()), compiled(summed())):
        data = pack_programs([program])
        back = unpack_programs(data, load_target(program.target), frozenset(), own)
        assert pack_programs(back) == data
        assert lower(back[0]) == lower(program)


@pytest.mark.parametrize("own", [False, True])
def test_rules_are_checked_for_everybody(own: bool) -> None:
    program = summed()
    views = [view for _, view in program.body.items[0].views()]  # type: ignore[union-attr]
    wrong = replaced(program, 0, dst=views[0]._replace(shape=(1, *views[0].shape[1:])))
    with pytest.raises(ArtifactError) as caught:
        unpack_programs(pack_programs([compiled(wrong)]), load_target(program.target), frozenset(), own)
    assert caught.value.code == "artifact.program"


def test_another_encoding_of_the_same_program_is_not_ours() -> None:
    program = compiled(summed())
    parts = {f"core0/{name}.bin": part for name, part in encode(lower(program)).items()}
    parts["core0/tables.bin"] += b"\0"
    with pytest.raises(ArtifactError):
        unpack_programs(write_tar(parts), load_target(program.target), frozenset())


def test_an_outlined_program_is_loaded_once_and_late() -> None:
    program, loaded = compiled(summed()), []

    def load() -> tuple[Any, ...]:
        loaded.append(1)
        return (program,)

    (found,) = outlined(json.loads(json.dumps(outlines([program]))), load)
    assert (found.name, found.target, found.core, found.cores) == (program.name, program.target, 0, 1)
    assert repr(found.inputs) == repr(program.inputs)
    assert repr(found.outputs) == repr(program.outputs)
    assert not loaded
    assert found.body is program.body
    assert found.placement is program.placement
    assert found.inputs is program.inputs
    assert loaded == [1]
    with pytest.raises(AttributeError):
        _ = found.something  # type: ignore[attr-defined]


DAMAGE: dict[str, Callable[[Any], Any]] = {
    "no program": lambda document: document.clear(),
    "no inputs": lambda document: document[0].pop("inputs"),
    "region": lambda document: document[0]["outputs"][0][0].__setitem__(2, "moon"),
    "dtype": lambda document: document[0]["outputs"][0].__setitem__(1, "float33"),
    "fields": lambda document: document[0]["outputs"][0].pop(),
    "shape": lambda document: document[0]["outputs"][0].__setitem__(2, ["x"]),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_outline_is_refused(damage: Callable[[Any], Any]) -> None:
    document = json.loads(json.dumps(outlines([compiled(summed())])))
    damage(document)
    with pytest.raises((ValueError, KeyError, TypeError)):
        outlined(document, tuple)
