"""What a declaration says that an instruction touches beside its operands is what its body touches."""

from __future__ import annotations

import pytest

import nki  # noqa: F401 - fills the registry
from nki.isa.accumulator import scalar_registers
from nki.spec.engine import reduce_cmd
from nki.spec.instruction import EFFECTS, REGISTRY
from tests.isa.executed import STATE, Executed, executed
from tests.together import together


def _declared(done: Executed) -> set[str]:
    """Collectives meet other ranks, of which a launch in one process has none."""
    declared = set(done.issued.instruction.effects(done.issued.arguments))
    return declared - {"ranks"}


@together("name", REGISTRY)
def test_declared_effects_are_those_of_the_body(name: str) -> None:
    mine = [done for done in executed() if done.issued.instruction.name == name]
    assert mine, "no legal example executes it"
    wrong = [(done.target, _declared(done), done.used) for done in mine if _declared(done) != done.used]
    assert wrong == []


def test_every_effect_of_the_state_is_seen_by_the_spy() -> None:
    assert set().union(*(done.used for done in executed())) == set(STATE.values()) == set(EFFECTS) - {"fence", "ranks"}


@pytest.mark.parametrize("name", [n for n, i in REGISTRY.items() if i.label.startswith("nki.collectives.")])
def test_collectives_that_move_data_meet_other_ranks(name: str) -> None:
    moves = any(operand.is_tensor for operand in REGISTRY[name].operands.values())
    done = next(done for done in executed() if done.issued.instruction.name == name)
    assert REGISTRY[name].effects(done.issued.arguments) == (("ranks",) if moves else ())


@pytest.mark.parametrize(
    ("command", "result", "effects"),
    [
        (reduce_cmd.idle, None, ()),
        (reduce_cmd.idle, "view", ("accumulator",)),
        (reduce_cmd.reset, None, ("accumulator",)),
        (reduce_cmd.reduce, None, ("accumulator",)),
        (reduce_cmd.reset_reduce, "view", ("accumulator",)),
    ],
)
def test_activation_touches_the_registers_only_if_asked(
    command: reduce_cmd, result: object, effects: tuple[str, ...]
) -> None:
    instruction = REGISTRY["activation"]
    fields = dict.fromkeys(instruction.operands) | {"reduce_cmd": command, "reduce_res": result}
    arguments = instruction.arguments(**fields)
    assert instruction.effects(arguments) == scalar_registers(arguments) == effects


def test_a_barrier_of_one_core_meets_nobody() -> None:
    for name in ("barrier", "core_barrier"):
        instruction = REGISTRY[name]
        for cores, effects in (((0,), ()), ((0, 1), ("rendezvous",))):
            assert (
                instruction.effects(instruction.arguments(**dict.fromkeys(instruction.operands) | {"cores": cores}))
                == effects
            )
