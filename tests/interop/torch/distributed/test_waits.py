"""Which ranks wait for each other, from what they have written down."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist

from nki.core.source import UNKNOWN
from nki.interop.torch.distributed.calls import Call
from nki.interop.torch.distributed.waits import Entry, Wait, Waits, stuck
from nki.interop.torch.distributed.ways import Way

_CALL = Call(("all_reduce", (4, "float32")), UNKNOWN)


def waits_in(group: str, number: int, ranks: Iterable[int], **made: int) -> Entry:
    """A rank at a collective of a group, with so many collectives in others."""
    needs = {rank: f"{group}|0" for rank in ranks}
    calls = {f"{name}|0": count for name, count in {group: number, **made}.items()}
    wait = Wait(number, needs, False, (0, 1, 2), _CALL)
    return Entry.of(Entry((wait,), calls).text(1).encode())


def receives(source: int | None, rank: int, others: Iterable[int], **sent: int) -> Entry:
    way = Way(source, rank)
    needs = {other: way._replace(source=other).named("a") for other in others}
    opened = [Way(rank, int(target.removeprefix("to"))).named("a") for target in sent]
    wait = Wait(1, needs, source is None, (0, 1, 2), _CALL)
    return Entry((wait,), {way.named("a"): 1, **dict.fromkeys(opened, 1)}, frozenset(opened))


def test_two_groups_crosswise() -> None:
    found = stuck({0: waits_in("a", 1, [1]), 1: waits_in("b", 1, [0])})
    assert set(found) == {0, 1}
    assert found[0][1] == waits_in("b", 1, [0]).waits[0]


def test_who_waits_for_ranks_that_wait_for_each_other_is_stuck_as_well() -> None:
    entries = {0: waits_in("a", 1, [1]), 1: waits_in("b", 1, [0]), 2: waits_in("c", 1, [0], b=4)}
    assert set(stuck(entries)) == {0, 1, 2}


def test_a_rank_that_computes_is_waited_for() -> None:
    assert not stuck({0: waits_in("a", 1, [1]), 1: Entry(made={"a|0": 0})})
    assert not stuck({0: waits_in("a", 1, [1])}), "of rank 1 nothing is known"
    assert not stuck({0: waits_in("a", 1, [1, 2]), 1: waits_in("a", 1, [0, 2]), 2: Entry()})


def test_a_call_that_was_made_already_holds_nobody_up() -> None:
    assert not stuck({0: waits_in("a", 1, [1]), 1: waits_in("b", 1, [0], a=1)})
    assert not stuck({0: waits_in("a", 2, [1]), 1: waits_in("a", 2, [0])}), "both are at the same call"
    assert set(stuck({0: waits_in("a", 2, [1]), 1: waits_in("b", 1, [0], a=1)})) == {0, 1}


def test_a_rank_that_left_the_group_makes_no_more_calls_there() -> None:
    assert stuck({0: waits_in("a", 2, [1]), 1: Entry(made={"a|0": 1}, left={"a"})}) == {0: {1: None}}
    assert not stuck({0: waits_in("a", 1, [1]), 1: Entry(made={"a|0": 1}, left={"a"})})


def test_messages() -> None:
    assert set(stuck({0: receives(1, 0, [1]), 1: receives(0, 1, [0])})) == {0, 1}
    assert not stuck({0: receives(1, 0, [1]), 1: receives(0, 1, [0], to0=1)})


def test_a_message_from_anybody_comes_from_one_of_the_others() -> None:
    others = {1: receives(0, 1, [0]), 2: receives(0, 2, [0])}
    assert set(stuck({0: receives(None, 0, [1, 2]), **others})) == {0, 1, 2}
    assert not stuck({0: receives(None, 0, [1, 2]), **others, 2: Entry()})
    sends = {**others, 2: receives(1, 2, [1], to0=1)}
    assert 0 not in stuck({0: receives(None, 0, [1, 2]), **sends})
    unknown = Entry(receives(0, 1, [0]).waits, {Way(None, 1).named("a"): 1})
    sent = Entry((Wait(1, {1: Way(0, 1).named("a")}, False, (0, 1), _CALL),), {Way(0, 1).named("a"): 1})
    assert not stuck({0: sent, 1: unknown}), "its receive from anybody may have been for this message"


def test_a_thread_with_callbacks_to_run_may_still_make_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    store, end = dist.HashStore(), threading.Event()
    store.set("nki/waits/1", waits_in("b", 1, [0]).text(1))
    waits = Waits(store, 0, 2)
    call: Any = SimpleNamespace(
        call=_CALL, members=(0, 1), way="a|0", number=0, needs={1: "a|0"}, one=False, parts=(), ended=False
    )
    other = threading.Thread(target=end.wait, daemon=True)
    other.start()
    monkeypatch.setattr(threading, "enumerate", lambda: [])  # other tests leave threads
    waits.made(call)
    waits.promise(other)
    with waits.waiting(call):
        assert not (waits.in_vain() or waits.in_vain())
        waits.keep(other)
        assert waits.in_vain() or waits.in_vain()
    waits.promise(other)
    with waits.following(other):
        assert not (waits.in_vain() or waits.in_vain()), "callbacks for which this thread waits go on"
    end.set()
    other.join()
