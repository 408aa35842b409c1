"""What JAX's programs say about kernels, on one device and on several."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

import nki
import nki.driver.compile
from tests.interop.jax import kernels
from tests.interop.jax.process import run, run_without_jax

jax = pytest.importorskip("jax")
jnp = jax.numpy

A = jnp.arange(32, dtype=jnp.float32).reshape(4, 8)


def official(text: str) -> dict[str, Any]:
    found = re.search(r'@AwsNeuronCustomNativeKernel\(.*?api_version = 2.*?backend_config = "([^"]+)"', text)
    assert found is not None, text
    fields: dict[str, Any] = json.loads(base64.b64decode(found[1]))
    return fields


def test_devices_get_the_official_custom_call() -> None:
    traced = jax.jit(kernels.add[2]).trace(A, A * 2)
    fields = official(traced.lower(lowering_platforms=("neuron",)).as_text())
    assert list(fields) == ["kernel_version", "klir_binary", "func_name", "grid", "has_collectives"]
    assert fields["kernel_version"] == 1
    assert fields["func_name"] == "add"
    assert fields["grid"] == [2]
    assert fields["has_collectives"] is False
    assert fields["klir_binary"]["input_names"] == ["a", "b"]
    assert len(fields["klir_binary"]["output_names"]) == 1
    assert re.fullmatch("[0-9a-f]{64}", fields["klir_binary"]["binary"])


def test_without_a_grid_it_is_empty() -> None:
    traced = jax.jit(kernels.scaled).trace(A)
    assert official(traced.lower(lowering_platforms=("neuron",)).as_text())["grid"] == []


def test_the_host_gets_the_same_fields_as_attributes() -> None:
    function = jax.jit(lambda a, b: kernels.add(a, b) * a)
    compiled = function.lower(A, A * 2).compile()
    (line,) = [line for line in compiled.as_text().splitlines() if "custom-call(" in line]
    assert 'custom_call_target="AwsNeuronCustomNativeKernel"' in line and "API_VERSION_TYPED_FFI" in line
    for field in ('func_name = "add"', "grid = array<i64>", "has_collectives = false", "kernel_version = 1 : i64"):
        assert field in line
    assert re.search(r'klir_binary = \{binary = "[0-9a-f]{64}", input_names = "a,b", output_names = "\w+"\}', line)
    assert "nki_call" in line


def test_equal_calls_are_one_kernel() -> None:
    function = jax.jit(lambda a: kernels.add(a, a) + kernels.add(a, a))
    keys = re.findall(r'binary = "([0-9a-f]{64})"', function.lower(A).as_text())
    assert len(keys) == 2 and len(set(keys)) == 1
    other = re.findall(r'binary = "([0-9a-f]{64})"', jax.jit(lambda a: kernels.add(a, a)).lower(A[:2]).as_text())
    assert set(other) != set(keys)


def test_the_trace_is_made_once_per_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    compile_once = nki.driver.compile._compile

    def counted(*args: Any) -> Any:
        seen.append(args)
        return compile_once(*args)

    monkeypatch.setattr(nki.driver.compile, "_compile", counted)
    kernel = nki.jit(kernels.add.func)
    for shape in ((4, 8), (4, 8), (2, 8)):
        a = jnp.ones(shape)
        jax.jit(lambda a, b: kernel(a, b) * 2)(a, a)
        jax.vmap(kernel)(a[None], a[None])
    assert len(seen) == 2


SHARDED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from nki.interop.jax import with_vjp
from tests.interop.jax import kernels as kernels

mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
a = jnp.arange(64, dtype=jnp.float32).reshape(8, 8)
plus = with_vjp(kernels.add, None, lambda kept, g: (g, g))

def mapped(function, *specs, out=P("d"), check=True):
    return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=out, check_vma=check)

def same(name, found, wanted):
    print(name, np.array_equal(found, wanted))

for check in (True, False):
    f = mapped(kernels.add, P("d"), P("d"), check=check)
    same("eager", f(a, a), 2 * a)
    same("jit", jax.jit(f)(a, a), 2 * a)
    mixed = mapped(lambda x, y: kernels.add(x, y) + jax.lax.psum(x, "d"), P("d"), P(), check=check)
    same("mixed", jax.jit(mixed)(a, a[:4]), np.concatenate([a[:4], a[4:]]) + np.tile(2 * a[:4] + a[4:], (2, 1)))
    same("equal", jax.jit(mapped(lambda y: kernels.add(y, y), P(), out=P(), check=check))(a), 2 * a)
    b = jnp.stack([a] * 4)
    same("vmap", jax.jit(mapped(lambda x: jax.vmap(kernels.add)(x, x), P("d"), check=check))(b), 2 * b)
    squared = mapped(lambda x: plus(x, x) * x, P("d"), check=check)
    same("grad", jax.jit(jax.grad(lambda x: squared(x).sum()))(a), 4 * a)
sharded = jax.device_put(a, NamedSharding(mesh, P("d")))
same("whole", jax.jit(kernels.add)(sharded, sharded), 2 * a)
"""


def test_shard_map_on_two_devices() -> None:
    printed = run(SHARDED, XLA_FLAGS="--xla_force_host_platform_device_count=2").splitlines()
    assert len(printed) == 13
    assert all(line.endswith(" True") for line in printed), printed


DIVIDED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
from nki.interop.jax import compile

a = jnp.linspace(-1, 1, 32).reshape(8, 4)
mesh = Mesh(np.array(jax.devices()), ("d",))
divided = jax.shard_map(compile(jnp.tanh), mesh=mesh, in_specs=P("d"), out_specs=P("d"))
print(float(abs(jax.jit(divided)(a) - jnp.tanh(a)).max()) < 1e-6)
"""


def test_a_program_is_for_one_of_several_devices() -> None:
    assert run(DIVIDED, XLA_FLAGS="--xla_force_host_platform_device_count=2") == "True\n"


LEFT_ALONE = """
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from tests.interop.jax import kernels as kernels
mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
a = jax.device_put(jnp.ones((8, 8)), NamedSharding(mesh, P("d")))

def steps(a):
    n = jnp.where(jax.lax.axis_index("d") == 1, 200, 1)
    return jax.lax.fori_loop(0, n, lambda i, c: kernels.add(c, a), a)

def sharded():
    return jax.jit(jax.shard_map(steps, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False))

print(float(sharded()(a)[0, 0]))
KEEP = [sharded()(a)] if KEPT else sharded()(a).shape
"""


@pytest.mark.parametrize("kept", [True, False], ids=["the result is kept", "nothing is kept"])
def test_a_program_that_still_runs_does_not_stop_the_end_of_the_process(kept: bool) -> None:
    code = LEFT_ALONE.replace("KEPT", str(kept))
    assert run(code, XLA_FLAGS="--xla_force_host_platform_device_count=2") == "2.0\n"


PAUSED = """
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from tests.interop.jax import kernels as kernels

def paused(a):
    b = kernels.add(a, a)
    long = jax.lax.fori_loop(0, 30, lambda i, m: (m @ m) * 1e-3, jnp.full((500, 500), b[0, 0]))
    return kernels.add(b, long[:1, :1] * 0 + b)

mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
if SHARDED:
    a = jax.device_put(jnp.ones((8, 8)), NamedSharding(mesh, P("d")))
    paused = jax.shard_map(paused, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False)
else:
    a = jnp.ones((8, 8))
    jax.set_mesh(mesh)
compiled = jax.jit(paused).lower(a).compile()
print(float(compiled(a)[0, 0]))
compiled(a)
"""


@pytest.mark.parametrize("sharded", [True, False], ids=["on two devices", "on one device, with a mesh for the process"])
def test_a_pause_between_kernels_is_not_the_end_of_a_program(sharded: bool) -> None:
    code = PAUSED.replace("SHARDED", str(sharded))
    assert run(code, XLA_FLAGS="--xla_force_host_platform_device_count=2") == "4.0\n"


FIRST = """
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from tests.interop.jax import kernels as kernels

def late(a):
    long = jax.lax.fori_loop(0, 30, lambda i, m: (m @ m) * 1e-3, jnp.full((500, 500), a[0, 0]))
    return kernels.add(a, long[:1, :1] * 0 + a)

mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
a = jax.device_put(jnp.ones((8, 8)), NamedSharding(mesh, P("d")))
jax.jit(jax.shard_map(late, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False))(a)
"""


def test_a_program_that_has_called_no_kernel_yet_does_not_stop_the_end_of_the_process() -> None:
    assert run(FIRST, XLA_FLAGS="--xla_force_host_platform_device_count=2") == ""


ENDLESS = """
import os, signal, threading, warnings
import jax, jax.numpy as jnp
from nki.interop.jax import activity as jax_activity
from tests.interop.jax import kernels as kernels
signal.signal(signal.SIGINT, signal.default_int_handler)
warnings.simplefilter("ignore")

def endless(a):
    start = jnp.full((300, 300), a[0, 0])
    start = a + (start @ start)[:1, :1] * 0
    return jax.lax.while_loop(lambda c: c[0, 0] > 0, lambda c: kernels.add(c * 0, a), start)

a = jnp.ones((8, 8))
jax.jit(kernels.add)(a, a).block_until_ready()
"""

INTERRUPTED = """
KEPT = jax.jit(endless).lower(a).compile()(a)
timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
timer.daemon = True
wait = jax_activity._wait

def waiting(*given):
    timer.start()  # an interrupt that came before the end of the process would be another one
    jax_activity._wait = wait
    wait(*given)

jax_activity._wait = waiting
"""


def test_an_interrupt_ends_a_process_whose_programs_never_end() -> None:
    assert run(ENDLESS + INTERRUPTED) == ""


FORKED = """
import os, signal
import jax, jax.numpy as jnp
from nki.interop.jax.activity import ACTIVITY
from tests.interop.jax import kernels as kernels
jax.jit(kernels.add)(jnp.ones((8, 8)), jnp.ones((8, 8))).block_until_ready()
with ACTIVITY.call():
    child = os.fork()
    if not child:
        signal.alarm(60)
        ACTIVITY.drain()
        os._exit(0)
print(os.waitpid(child, 0)[1])
"""


def test_a_forked_process_waits_for_no_program_of_its_parent() -> None:
    assert run(FORKED) == "0\n"


STORED = """
import jax, jax.numpy as jnp
jax.config.update("jax_compilation_cache_dir", DIRECTORY)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
from tests.interop.jax import kernels as kernels
print(float(jax.jit(lambda a: kernels.add(a, a) * 2 + 1)(jnp.ones((4, 8)))[0, 0]))
"""


def test_executables_that_jax_stored_find_their_kernels(tmp_path: Any) -> None:
    code = STORED.replace("DIRECTORY", repr(str(tmp_path)))
    assert run(code) == "5.0\n"
    stored = {path.name for path in tmp_path.iterdir() if path.name.endswith("-cache")}
    assert any("lambda" in name for name in stored)
    assert run(code) == "5.0\n"
    assert {path.name for path in tmp_path.iterdir() if path.name.endswith("-cache")} == stored


def test_neither_nki_nor_a_call_of_a_kernel_imports_jax() -> None:
    code = "import sys, numpy as np\nfrom tests.interop.jax import kernels as k\nk.add(np.ones((4, 8), np.float32), "
    code += 'np.ones((4, 8), np.float32))\nprint("jax" in sys.modules, "nki.interop.jax" in sys.modules)'
    assert run_without_jax(code) == "False False\n"
