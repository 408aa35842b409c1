"""Cores: a model on two of them, what they exchange, and getting a core back whose call took too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.graph.compile import Setting
from nki.runtime import Loaded, Model, NrtError, Runtime, Status, recording, write_system_trace
from nki.runtime.traffic import traffic
from tests.graph import stages
from tests.graph.hand_made import EMITTERS, group, module, value
from tests.graph.references_made import called
from tests.runtime.slow import SECONDS, Slow, time_begins_at, until

ROWS, COLUMNS = 64, 16


@nki.jit
def other_half(a):
    """Each core doubles its rows and sends them to the other one, which stores them: the halves change places."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    mine, theirs = (nl.ndarray((ROWS, COLUMNS), a.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(dst=mine, src=a[core * ROWS : (core + 1) * ROWS])
    nisa.tensor_scalar(dst=mine, data=mine, op0=nl.multiply, operand0=2.0)
    nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
    nisa.dma_copy(dst=out[core * ROWS : (core + 1) * ROWS], src=theirs)
    return out


@pytest.fixture(scope="module")
def pair() -> Model:
    """``swap(2 * (x + x))`` on two cores."""
    a, b, c = (value(name, 2 * ROWS, COLUMNS) for name in "abc")
    call, kept = called(other_half[2], (np.zeros((2 * ROWS, COLUMNS), np.float32),), (b,), c)
    found = stages.compiled(
        module((a,), [group("add", (a, a), b), call], c), Setting("pair", "trn2", emitters=EMITTERS)
    )
    del kept
    return found.model


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime("trn2") as made:
        yield made


def _input(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((2 * ROWS, COLUMNS), np.float32)


def _expected(x: np.ndarray) -> np.ndarray:
    return 4 * np.concatenate([x[ROWS:], x[:ROWS]])


def _called(runtime: Runtime, loaded: Loaded, seed: int = 0, timeout: float | None = None) -> np.ndarray:
    inputs, outputs = runtime.tensors_of(loaded)
    runtime.write(inputs["a"], _input(seed))
    runtime.execute(loaded, inputs, outputs, timeout)
    return runtime.read(next(iter(outputs.values())))


def _refused(call: Callable[[], object]) -> NrtError:
    with pytest.raises(NrtError) as caught:
        call()
    return caught.value


def test_a_model_on_two_cores_takes_two_cores(runtime, pair):
    loaded = runtime.load(pair, core=2)
    assert loaded.cores == (2, 3)
    assert [core.models for core in runtime.state()[1:5]] == [(), ("pair",), ("pair",), ()]
    assert np.array_equal(_called(runtime, loaded), _expected(_input()))
    runtime.unload(loaded)
    assert [core.models for core in runtime.state()[2:4]] == [(), ()]


def test_it_begins_at_an_even_core(runtime, pair):
    assert _refused(lambda: runtime.load(pair, core=1)).status is Status.LOAD_NOT_ENOUGH_NC
    assert all(core.used == 0 for core in runtime.state())


def test_both_cores_are_busy_meanwhile(runtime, pair):
    loaded, other = runtime.load(pair), runtime.load(pair)
    slow = Slow(pair)
    loaded.model = slow
    thread = threading.Thread(target=_called, args=(runtime, loaded))
    thread.start()
    assert slow.started.wait(SECONDS)
    assert [core.status for core in runtime.state()[:3]] == ["running", "running", "ready"]
    results: list[np.ndarray] = []
    waiting = threading.Thread(target=lambda: results.append(_called(runtime, other, 1)))
    waiting.start()
    time.sleep(0.05)
    assert not results, "it waits for the cores"
    slow.go.set()
    thread.join()
    waiting.join()
    assert np.array_equal(results[0], _expected(_input(1)))


def test_a_core_that_timed_out_is_reset(runtime, pair):
    loaded, other = runtime.load(pair), runtime.load(pair)
    slow = Slow(pair)
    loaded.model = slow
    with time_begins_at(slow.started):
        assert _refused(lambda: _called(runtime, loaded, timeout=0.05)).status is Status.TIMEOUT
    assert [core.status for core in runtime.state()[:2]] == ["timed out"] * 2
    error = _refused(lambda: _called(runtime, other))
    assert error.status is Status.EXEC_NC_BUSY and "runtime.reset(0)" in error.fix
    runtime.reset(0)
    assert "runtime.reset(1)" in _refused(lambda: _called(runtime, other)).fix
    runtime.reset(1)
    assert [core.status for core in runtime.state()[:2]] == ["ready"] * 2
    assert np.array_equal(_called(runtime, other), _expected(_input()))
    slow.go.set()
    assert np.array_equal(_called(runtime, other, 2), _expected(_input(2)))


def test_what_waits_for_a_reset_core_is_executed(runtime, pair):
    loaded, other = runtime.load(pair), runtime.load(pair)
    slow = Slow(pair)
    loaded.model = slow
    late = threading.Thread(target=lambda: _refused(lambda: _called(runtime, loaded, timeout=0.05)))
    results: list[np.ndarray] = []
    waiting, waits = threading.Thread(target=lambda: results.append(_called(runtime, other, 3))), threading.Event()
    with time_begins_at(waits):
        late.start()
        assert slow.started.wait(SECONDS)
        waiting.start()
        until(runtime._cores[0]._lane.jobs.qsize)
        waits.set()
        late.join()
    runtime.reset(0)
    runtime.reset(1)
    waiting.join(SECONDS)
    assert np.array_equal(results[0], _expected(_input(3)))
    slow.go.set()


def test_a_core_on_time_is_not_changed_by_a_reset(runtime, pair):
    loaded = runtime.load(pair)
    runtime.reset(0)
    assert np.array_equal(_called(runtime, loaded), _expected(_input()))


def test_traffic_is_counted(pair):
    found = traffic(pair.programs)
    assert (found.sends, found.sent_bytes) == (2, 2 * ROWS * COLUMNS * 4)
    assert found.meetings >= 2
    assert found.shared_bytes >= ROWS * COLUMNS * 4, "the second core reads what the first one wrote"
    assert not any(traffic(pair.programs[:1]).facts().values())


def test_traffic_is_in_the_system_trace(runtime, pair, tmp_path):
    trace = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    from nki.profiling.gate import profile_programs

    with recording() as spans:
        _called(runtime, runtime.load(pair))
    facts = dict(next(span for span in spans.spans if span.name == "execute").facts)
    assert facts["cores"] == 2 and facts["sent_bytes"] == 2 * ROWS * COLUMNS * 4
    write_system_trace(spans.spans, tmp_path / "both.pftrace", profile_programs(pair.programs, pair.target))
    found = trace.Trace()
    found.ParseFromString((tmp_path / "both.pftrace").read_bytes())
    tracks = {p.track_descriptor.uuid: p.track_descriptor.name for p in found.packet if p.HasField("track_descriptor")}
    names = {p.track_descriptor.process.process_name for p in found.packet if p.HasField("track_descriptor")}
    assert {"host", "core to core"} <= names
    sends = [p.track_event for p in found.packet if p.track_event.name == "send and receive"]
    assert sorted(tracks[event.track_uuid] for event in sends) == ["core 0", "core 1"]
    assert all(
        note.int_value == ROWS * COLUMNS * 4 for e in sends for note in e.debug_annotations if note.name == "bytes"
    )
