"""Collectives of more than one rank: traced, verified and written to IR, but refused in a plain call, which has one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import collectives as ncc
from nki.core.errors import LaunchError, NkiError
from nki.driver.launch import trace_only
from nki.ir.build import build
from nki.ir.read import read
from nki.options import Options
from nki.target.load import load_target
from nki.testing.equality import differences
from tests.support import both, rejection

X = np.arange(32, dtype=np.float32).reshape(8, 4)
GROUP = ncc.ReplicaGroup([[0, 1], [2, 3]])
FOUR = ncc.ReplicaGroup([[0, 1, 2, 3]])


def out(*shape: int) -> Any:
    return nl.ndarray(shape, nl.float32, buffer=nl.shared_hbm)


def table(ranks: int) -> Any:
    return nl.ndarray((3, ranks), nl.uint32, buffer=nl.shared_hbm)


def permute_ring(a: Any) -> None:
    ncc.collective_permute_implicit([[a], [a]], [[out(8, 4)], [out(8, 4)]], GROUP, [0, 1])


def split(name: str, group: Any, ranks: int) -> Any:
    def run(a: Any) -> None:
        getattr(ncc, f"{name}_trigger")(getattr(ncc, f"{name}_prepare")([a], [out(8, 4)], group, table(ranks)))

    return run


MANY = {
    "all_reduce": lambda a: ncc.all_reduce([a], [out(8, 4)], GROUP, nl.add),
    "all_gather": lambda a: ncc.all_gather([a], [out(16, 4)], GROUP, 0),
    "reduce_scatter": lambda a: ncc.reduce_scatter([a], [out(4, 4)], GROUP, 0, nl.maximum),
    "all_to_all": lambda a: ncc.all_to_all([a], [out(8, 4)], GROUP, collective_dim=0),
    "all_gather_v": lambda a: ncc.all_gather_v([a], [out(8, 4)], FOUR, table(4)),
    "all_to_all_v": lambda a: ncc.all_to_all_v([a], [out(8, 4)], GROUP, table(2)),
    "all_gather_v_prepare": split("all_gather_v", FOUR, 4),
    "all_to_all_v_prepare": split("all_to_all_v", GROUP, 2),
    "collective_permute": lambda a: ncc.collective_permute([a], [out(8, 4)], [(0, 1), (1, 0)]),
    "collective_permute_implicit": permute_ring,
    "collective_permute_implicit_reduce": lambda a: ncc.collective_permute_implicit_reduce(
        [[a]], [[a]], [[out(8, 4)]], GROUP, nl.minimum
    ),
    "current_processing_rank_id": lambda a: ncc.collective_permute_implicit_current_processing_rank_id(1, GROUP),
}


def kernel_of(name: str) -> Any:
    def kernel(a: Any) -> Any:
        MANY[name](a)
        return a

    return nki.jit(kernel)


@pytest.mark.parametrize("name", MANY)
def test_several_ranks_are_refused_in_a_plain_call(name: str) -> None:
    error = rejection(kernel_of(name), X)
    assert isinstance(error, LaunchError) and error.code == "collective.ranks"
    assert name in error.message and "this launch has 1 rank" in error.message
    assert error.location.frames[0].file == __file__


@pytest.mark.parametrize("name", MANY)
def test_several_ranks_are_traced_verified_and_written(name: str) -> None:
    (tracer,) = trace_only(kernel_of(name).launch(), (X,), {}, load_target("trn2"), Options())
    assert tracer.findings == []
    (again,) = read(build([tracer.program]))
    assert differences(tracer.program, again) == []


def test_a_replica_group_may_be_an_argument() -> None:
    def kernel(a: Any, group: Any) -> Any:
        result = out(8, 4)
        ncc.all_reduce(srcs=[a], dsts=[result], replica_group=group, op=nl.add)
        return result

    np.testing.assert_array_equal(both(kernel, X, ncc.ReplicaGroup([[0]])), X)
    assert rejection(kernel, X, GROUP).code == "collective.ranks"


def test_another_rank_than_0_is_not_there() -> None:
    def kernel(a: Any) -> Any:
        ncc.all_reduce([a], [out(8, 4)], ncc.ReplicaGroup([[3]]), nl.add)
        return a

    assert rejection(kernel, X).code == "collective.ranks"


@pytest.mark.parametrize("group", [None, 3, [], [[]], [0, 1], [["a"]], [[True]], [[-1]]])
def test_a_group_is_lists_of_ranks(group: Any) -> None:
    def kernel(a: Any) -> Any:
        ncc.all_reduce([a], [out(8, 4)], ncc.ReplicaGroup(group), nl.add)
        return a

    assert rejection(kernel, X).code == "collective.group"


@pytest.mark.parametrize("wrong", [[a for a in "xy"], [[0, 1]], None])
def test_other_things_are_no_group(wrong: Any) -> None:
    def kernel(a: Any) -> Any:
        ncc.all_reduce([a], [out(8, 4)], wrong, nl.add)
        return a

    assert rejection(kernel, X).code == "operand.kind"


def test_ranks_are_registers_that_select() -> None:
    def kernel(a: Any) -> Any:
        result = out(1, 4)
        nisa.dma_copy(dst=result, src=a.reshape((8, 1, 4)).select(0, ncc.rank_id()))
        return result

    np.testing.assert_array_equal(both(kernel, X), X[:1])


def test_messages_name_the_module() -> None:
    def kernel(a: Any) -> Any:
        ncc.all_gather([a], [out(8, 4)], GROUP)
        return a

    assert "nki.collectives.all_gather needs collective_dim" in rejection(kernel, X).message


def pairing(*steps: str) -> Any:
    """prepare and trigger in some order; a number says which handle."""

    def kernel(a: Any) -> Any:
        handles = []
        for step in steps:
            if step == "prepare":
                handles.append(ncc.all_to_all_v_prepare([a], [out(8, 4)], ncc.ReplicaGroup([[0]]), filled()))
            else:
                ncc.all_to_all_v_trigger(handles[int(step)])
        return a

    return kernel


def filled() -> Any:
    metadata = table(1)
    nl.store(metadata, nl.full((3, 1), 0, nl.uint32))
    return metadata


def test_pairs_of_prepare_and_trigger() -> None:
    made = nki.jit(pairing("prepare", "0", "prepare", "1"))
    made(X)
    names = [issued.instruction.name for issued in made.report.programs[0].body.walk()]
    positions = [i for i, name in enumerate(names) if name.startswith("all_to_all_v")]
    assert made.report.programs[0].edges == [tuple(positions[:2]), tuple(positions[2:])]


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        (("prepare",), "collective.unpaired"),
        (("prepare", "prepare"), "collective.prepared"),
        (("prepare", "0", "0"), "collective.prepared"),
    ],
)
def test_pairs_that_do_not_match(steps: tuple[str, ...], code: str) -> None:
    assert rejection(pairing(*steps), X).code == code


def test_a_trigger_takes_the_prepare_of_its_kind() -> None:
    def kernel(a: Any) -> Any:
        ncc.all_gather_v_trigger(ncc.all_to_all_v_prepare([a], [out(8, 4)], ncc.ReplicaGroup([[0]]), filled()))
        return a

    assert rejection(kernel, X).code == "collective.trigger"


def test_metadata_beyond_the_tensors() -> None:
    def kernel(a: Any, metadata: Any) -> Any:
        after = table(1)
        nl.store(after, nl.load(metadata))
        ncc.all_to_all_v([a], [out(8, 4)], ncc.ReplicaGroup([[0]]), after)
        return a

    error: NkiError = rejection(kernel, X, np.array([[30], [3], [0]], np.uint32))
    assert error.code == "collective.size" and "30 elements from 3 of 32" in error.message
