"""Functions over four devices that XLA divides, compiled, against JAX on the CPU."""

from __future__ import annotations

from tests.interop.jax.process import run

TRAINED = """
import jax, jax.numpy as jnp, numpy as np
from jax.lax import with_sharding_constraint as constrained
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from nki.interop.jax import compile

mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("dp", "tp"))
place = lambda *axes: NamedSharding(mesh, P(*axes))
random = np.random.default_rng(0)

def attention(qkv, o, x):
    q, k, v = jnp.einsum("bsw,nwhd->nbhsd", x, qkv)
    scores = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k))
    return constrained(x + jnp.einsum("bhqk,bhkd,hdw->bqw", scores, v, o), place("dp", "tp"))

def loss(up, down, x):
    return (jax.nn.gelu(x @ up, approximate=False) @ down).sum()

def step(qkv, o, up, down, x):
    x = attention(qkv, o, x)
    return x, *jax.grad(loss, (0, 1))(up, down, x)

places = (place(None, None, "tp"), place("tp"), place(None, "tp"), place("tp"), place("dp"))
shapes = ((3, 8, 2, 4), (2, 4, 8), (8, 16), (16, 8), (2, 4, 8))
given = [jax.device_put(random.normal(size=s).astype("f4") / 3, p) for s, p in zip(shapes, places)]
jitted = jax.jit(step, in_shardings=places, out_shardings=(place("dp"), place(None, "tp"), place("tp")))
made = compile(jitted, target="trn2", patterns=[])
for wanted, found in zip(jitted(*given), made(*given), strict=True):
    print(np.allclose(wanted, found, atol=1e-5), wanted.sharding.is_equivalent_to(found.sharding, found.ndim))
print(*(each.shape for each in made.executable(*given).arguments))
"""

LOWERED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from nki.graph.errors import GraphError
from nki.graph.importers import jax_partition
from nki.interop.jax import compile

mesh = Mesh(np.array(jax.devices()), ("d",))
x = jax.device_put(np.random.default_rng(0).normal(size=(8, 4)).astype("f4"), NamedSharding(mesh, P("d")))

def mixed(x, scale):
    rolled = jax.shard_map(jnp.tanh, mesh=mesh, in_specs=P("d"), out_specs=P("d"))(jnp.roll(x * scale, 1, 0))
    return *jax.lax.top_k(rolled, 2), jax.random.wrap_key_data(x[0, :2].astype(jnp.uint32))

wanted, found = jax.jit(mixed)(x, 2.0), compile(mixed, target="trn2", patterns=[])(x, 2.0)
for one, other in zip(wanted[:2], found[:2], strict=True):
    print(np.allclose(one, other, atol=1e-5), one.sharding.is_equivalent_to(other.sharding, other.ndim))
print((jax.random.key_data(wanted[2]) == jax.random.key_data(found[2])).all())

plus = compile(lambda x: x + 1, target="trn2", patterns=[])
for argument in (x, np.asarray(x), jax.device_put(x, NamedSharding(mesh, P())), x):
    print((plus(argument) == x + 1).all(), len(plus.executables()))

hosted = compile(lambda x: jnp.linalg.cholesky(x.T @ x), target="trn2", patterns=[], fallback="host").entry(x)
print(hosted.parts[0].runner.lowered.shards.ranks)

class Beside:
    def __init__(self, made, problem=""):
        self.compiler_ir, self._lowering = made.compiler_ir, made._lowering
        self._made, self._problem = made, problem
    def compile(self, compiler_options):
        if self._problem:
            raise jax.errors.JaxRuntimeError(self._problem)
        jax.block_until_ready(jax.jit(lambda x: x * 3)(x))  # which the hook lets pass
        return self._made.compile(compiler_options)

made = jax.jit(lambda x: x.sum()).trace(x).lower(lowering_platforms=("neuron",))
module, shards = jax_partition.partitioned(Beside(made))
print("all_reduce" in str(module), "@jit__lambda" in str(module), shards.ranks, shards.shardings[0].spec)

def refused(made):
    try:
        jax_partition.partitioned(made)
    except GraphError as error:
        print(error.code, error)

refused(Beside(made, "no such ranks"))
jax_partition._OPTIONS["xla_enable_hlo_passes_only"] = "spmd-partitioning"
refused(made)
jax_partition._WHERE = jax_partition._WHERE._replace(clear=("jaxlib._xla", "gone"))
refused(made)
"""

FOUR = "--xla_force_host_platform_device_count=4"


def test_gradients_of_a_block_divided_by_shardings() -> None:
    *leaves, arguments = run(TRAINED, XLA_FLAGS=FOUR).splitlines()
    assert leaves == ["True True"] * 3
    assert arguments == "(3, 8, 1, 4) (1, 4, 8) (8, 8) (8, 8) (1, 4, 8)"


def test_what_xla_divides_and_what_it_does_not() -> None:
    printed = run(LOWERED, XLA_FLAGS=FOUR).splitlines()
    assert printed[:3] == ["True True", "True True", "True"]
    assert printed[3:7] == ["True 1", "True 2", "True 3", "True 3"]
    assert printed[7:9] == ["4", "True True 4 P()"]
    refused, unhooked, gone = (line for line in printed[9:] if line.startswith("graph.sharding"))
    assert "XLA does not partition the function: no such ranks" in refused
    assert "XLA compiles without its hooks" in unhooked
    assert "does not have jaxlib._xla.gone" in gone
