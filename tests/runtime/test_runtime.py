"""The runtime: what a model gives, who has memory, what waits, and that failures leave the rest as it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from nki.core.errors import ArtifactError
from nki.graph.compile import compile_module
from nki.runtime import Loaded, Model, NrtError, Runtime, Status, recording, show_ranges, write_system_trace
from nki.runtime.memory import Account
from nki.target.load import load_target
from tests.graph.test_executable import MODEL
from tests.runtime.slow import SECONDS, Slow, time_begins_at, until

_TARGET = load_target("trn2")


@pytest.fixture(scope="module")
def model() -> Model:
    return compile_module(MODEL, target="trn2", name="affine").model


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime("trn2") as made:
        yield made


def _arrays(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    return draw.random((200, 32), np.float32), draw.random(32, np.float32)


def _called(runtime: Runtime, loaded: Loaded, seed: int = 0, **more: float) -> np.ndarray:
    x, w = _arrays(seed)
    inputs, outputs = runtime.tensors_of(loaded)
    runtime.write(inputs["x"], x)
    runtime.write(inputs["w"], w)
    runtime.execute(loaded, inputs, outputs, **more)
    found = runtime.read(next(iter(outputs.values())))
    for tensor in (*inputs.values(), *outputs.values()):
        runtime.free(tensor)
    return found


def _expected(seed: int = 0) -> np.ndarray:
    x, w = _arrays(seed)
    return x * w + np.arange(32, dtype=np.float32)


def _refused(call) -> NrtError:
    with pytest.raises(NrtError) as caught:
        call()
    return caught.value


def test_load_write_execute_read_unload(runtime, model):
    loaded = runtime.load(model, core=3)
    assert runtime.state()[3].models == ("affine",)
    assert np.array_equal(_called(runtime, loaded), _expected())
    runtime.unload(loaded)
    assert all(core.used == 0 for core in runtime.state())


def test_a_file_is_loaded_as_well(runtime, model, tmp_path):
    model.save(tmp_path / "affine.neff")
    loaded = runtime.load(tmp_path / "affine.neff")
    assert np.array_equal(_called(runtime, loaded), _expected())


def test_every_target_has_its_cores_and_memory():
    for name in ("trn1", "trn2", "trn3"):
        target = load_target(name)
        with Runtime(name, devices=2) as runtime:
            state = runtime.state()
            assert len(state) == 2 * target.cores_per_device
            stacks = {(core.device, core.memory): core.capacity for core in state}
            assert sum(stacks.values()) <= 2 * target.hbm.bytes


def test_memory_is_accounted_for(runtime, model):
    tensor = runtime.allocate((1024, 1024), "bfloat16", core=0, name="cache")
    assert runtime.state()[0].used == 2 << 20
    assert runtime.state()[1].used == 2 << 20, "both cores share a stack"
    assert runtime.state()[2].used == 0
    loaded = runtime.load(model)
    owners = {use.owner.split()[0]: use.nbytes for use in runtime.memory(0)}
    assert owners["weights"] == 32 * 4 and owners["tensor"] == 2 << 20
    assert owners["model"] >= 200 * 32 * 5
    runtime.unload(loaded)
    runtime.free(tensor)
    assert runtime.state()[0].used == 0


def test_too_much_memory_is_an_error_with_a_table(runtime):
    runtime.allocate((1 << 20,), "float32", name="big")
    account = runtime._cores[0].account
    account.capacity = 5 << 20
    error = _refused(lambda: runtime.allocate((1 << 19,), "float32", name="more"))
    assert error.status is Status.RESOURCE
    assert "4,194,304  tensor big" in error.message and "1,048,576 are free" in error.message
    runtime.allocate((1 << 18,), "float32")


def test_a_model_that_does_not_fit_leaves_nothing_behind(runtime, model):
    runtime._cores[0].account.capacity = model.weight_bytes + 1
    assert _refused(lambda: runtime.load(model)).status is Status.RESOURCE
    assert runtime.state()[0].used == 0 and runtime.state()[0].models == ()


def test_accounts_of_many_threads_add_up():
    account = Account("stack", 1000)

    def work() -> None:
        for _ in range(200):
            account.give(account.take("x", 10))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert account.used == 0


def test_models_run_on_several_cores_at_once(runtime, model):
    other = compile_module(MODEL.replace("stablehlo.add", "stablehlo.subtract"), target="trn2", name="other").model
    loaded = [runtime.load(model, 0), runtime.load(other, 1), runtime.load(model, 2)]
    wrong: list[int] = []

    def work(core: int) -> None:
        for seed in range(6):
            x, w = _arrays(seed)
            expected = x * w + (-1 if core == 1 else 1) * np.arange(32, dtype=np.float32)
            if not np.array_equal(_called(runtime, loaded[core], seed), expected):
                wrong.append(core)

    threads = [threading.Thread(target=work, args=(core % 3,)) for core in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_call_that_takes_too_long_ends_for_its_caller(runtime, model):
    loaded = runtime.load(model)
    slow = Slow(model)
    loaded.model = slow
    with time_begins_at(slow.started):
        error = _refused(lambda: _called(runtime, loaded, timeout=0.05))
    assert error.code == "runtime.timeout" and error.status is Status.TIMEOUT
    assert _refused(lambda: _called(runtime, loaded)).status is Status.EXEC_NC_BUSY
    assert runtime.state()[0].busy
    slow.go.set()
    until(lambda: not runtime.state()[0].busy)
    assert np.array_equal(_called(runtime, loaded), _expected())


def test_a_model_is_not_unloaded_while_it_runs(runtime, model):
    loaded = runtime.load(model)
    slow = Slow(model)
    loaded.model = slow
    thread = threading.Thread(target=lambda: _called(runtime, loaded))
    thread.start()
    assert slow.started.wait(SECONDS)
    assert _refused(lambda: runtime.unload(loaded)).status is Status.EXEC_NC_BUSY
    slow.go.set()
    thread.join()
    runtime.unload(loaded)


def test_a_failure_is_the_callers_and_the_core_goes_on(runtime, model):
    class Failing(Slow):
        def run(self, *args, **more):
            raise ArtifactError("artifact.file", "boom")

    loaded = runtime.load(model)
    loaded.model = Failing(model)
    error = _refused(lambda: _called(runtime, loaded))
    assert error.status is Status.EXEC_COMPLETED_WITH_ERR and "boom" in error.message
    loaded.model = model
    assert np.array_equal(_called(runtime, loaded), _expected())


def test_handles_are_checked(runtime, model):
    loaded, tensor = runtime.load(model), runtime.allocate((4,), "int32")
    runtime.unload(loaded)
    runtime.free(tensor)
    for call in (
        lambda: runtime.read(tensor),
        lambda: runtime.free(tensor),
        lambda: runtime.unload(loaded),
        lambda: runtime.execute(loaded, {}, {}),
    ):
        assert _refused(call).status is Status.INVALID_HANDLE


def test_inputs_are_checked(runtime, model):
    loaded = runtime.load(model)
    inputs, outputs = runtime.tensors_of(loaded)
    elsewhere = {**inputs, "x": runtime.allocate((200, 32), "float32", core=1)}
    other = {**inputs, "x": runtime.allocate((200, 31), "float32")}
    more = {**inputs, "y": inputs["x"]}
    for given in (elsewhere, other, more, {"x": inputs["x"]}):
        assert _refused(lambda given=given: runtime.execute(loaded, given, outputs)).status is Status.EXEC_BAD_INPUT
    wrong = np.zeros((200, 32), np.float64)
    assert _refused(lambda: runtime.write(inputs["x"], wrong)).status is Status.EXEC_BAD_INPUT


def test_cores_and_targets_are_checked(runtime, model, tmp_path):
    assert _refused(lambda: runtime.load(model, 8)).status is Status.LOAD_NOT_ENOUGH_NC
    assert _refused(lambda: Runtime("trn2", devices=0)).status is Status.INVALID
    assert _refused(lambda: Runtime("trn9")).status is Status.INVALID
    assert _refused(lambda: runtime.allocate((2,), "float7")).status is Status.INVALID
    assert _refused(lambda: runtime.allocate((-2,), "float32")).status is Status.INVALID
    with Runtime("trn1") as other:
        assert _refused(lambda: other.load(model)).code == "runtime.target"
    (tmp_path / "no.neff").write_bytes(b"no")
    assert _refused(lambda: runtime.load(tmp_path / "no.neff")).status is Status.UNSUPPORTED_NEFF_VERSION


def test_nothing_works_after_close(model):
    runtime = Runtime("trn2")
    runtime.load(model)
    runtime.close()
    runtime.close()
    assert _refused(lambda: runtime.load(model)).status is Status.CLOSED
    assert _refused(runtime.state).status is Status.CLOSED


def test_threads_of_cores_end_with_the_runtime(model):
    before = set(threading.enumerate())
    with Runtime("trn2") as runtime:
        _called(runtime, runtime.load(model, core=5), 0)
        (made,) = (thread for thread in threading.enumerate() if thread not in before)
        assert made.name == "nki core 5"
    made.join(SECONDS)
    assert not made.is_alive()


def test_the_system_trace_holds_host_and_device(runtime, model, tmp_path):
    pytest.importorskip("perfetto")
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    from nki.profiling.gate import profile_programs

    with recording() as found:
        _called(runtime, runtime.load(model))
    names = {each.name: each for each in found.spans}
    assert {"load affine", "write x", "dispatch affine", "execute", "read result0"} <= set(names)
    assert names["dispatch affine"].start <= names["execute"].start <= names["execute"].end
    write_system_trace(found.spans, tmp_path / "all.pftrace", profile_programs(model.programs, _TARGET))
    trace = Trace()
    trace.ParseFromString((tmp_path / "all.pftrace").read_bytes())
    tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")}
    processes = {track.process.process_name for track in tracks.values() if track.HasField("process")}
    assert "host" in processes and any("affine on trn2" in name for name in processes)
    host = [p for p in trace.packet if p.HasField("track_event") and p.trusted_packet_sequence_id == 2]
    assert sorted(p.timestamp for p in host) == [p.timestamp for p in host]
    assert {p.track_event.name for p in host} - {""} == set(names)
    device = [p.timestamp for p in trace.packet if p.HasField("timestamp") and p.trusted_packet_sequence_id == 1]
    start = min(each.start for each in found.spans)
    assert min(device) >= names["execute"].start - start


def test_ranges_are_shown_to_a_framework(runtime, model):
    from contextlib import contextmanager

    seen: list[str] = []

    @contextmanager
    def ranged(name: str) -> Iterator[None]:
        seen.append(name)
        yield

    show_ranges("mine", ranged)
    try:
        _called(runtime, runtime.load(model))
    finally:
        show_ranges("mine", None)
    count = len(seen)
    _called(runtime, runtime.load(model))
    assert "nki runtime: execute" in seen and len(seen) == count
