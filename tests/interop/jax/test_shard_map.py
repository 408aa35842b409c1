"""Functions that `jax.shard_map` divides over four devices, compiled, against JAX on the CPU."""

from __future__ import annotations

from tests.interop.jax.process import run

COLLECTIVES = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P
from nki.interop.jax import compile

mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("dp", "tp"))
added = jnp.arange(4, dtype=jnp.float32)

def many(x, w):
    y = jnp.dot(x, w) + added
    return (
        lax.psum(y, "tp"),
        lax.all_gather(x, "dp", axis=1, tiled=True),
        lax.axis_index("tp") + y.astype(int) * 0,
        lax.ppermute(x, "tp", [(0, 1)]),
        lax.psum_scatter(y, "tp", scatter_dimension=1, tiled=True),
        lax.all_to_all(y, "tp", 0, 1, tiled=True),
        lax.pmean(y, ("dp", "tp")),
        lax.pmax(y, "dp"),
    )

tiles = P("dp", "tp")
outs = (P("dp"), P(None, "tp"), tiles, tiles, tiles, tiles, P(), P(None, "tp"))
divided = jax.shard_map(many, mesh=mesh, in_specs=(tiles, P("tp")), out_specs=outs, check_vma=False)
random = np.random.default_rng(0)
x, w = random.normal(size=(8, 16)).astype("f4"), random.normal(size=(16, 4)).astype("f4")
for want, found in zip(jax.jit(divided)(x, w), compile(divided, target="trn2", patterns=[])(x, w), strict=True):
    print(want.shape == found.shape, want.sharding == found.sharding, np.allclose(want, found, atol=1e-5))
"""

BLOCK = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P
from nki.interop.jax import compile

HEADS, DIM, WIDTH, PAST = 4, 16, 64, 8
mesh = Mesh(np.array(jax.devices()), ("tp",))

def norm(x):
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)

def block(x, keys, values, weights, total):
    q, k, v = (jnp.einsum("sw,whd->hsd", norm(x), weights[name]) for name in "qkv")
    keys, values = jnp.concatenate([keys, k], 1), jnp.concatenate([values, v], 1)
    scores = jnp.einsum("hqd,hkd->hqk", q, keys) / DIM**0.5
    ahead = jnp.arange(keys.shape[1])[None] > jnp.arange(x.shape[0])[:, None] + keys.shape[1] - x.shape[0]
    found = jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(jnp.where(ahead, -1e9, scores), -1), values)
    x = x + total(jnp.einsum("hqd,hdw->qw", found, weights["o"]))
    gated = jax.nn.silu(norm(x) @ weights["gate"]) * (norm(x) @ weights["up"])
    return x + total(gated @ weights["down"]), keys, values

random = np.random.default_rng(0)
shapes = dict.fromkeys("qkv", (WIDTH, HEADS, DIM)) | dict.fromkeys(("gate", "up"), (WIDTH, 128))
shapes |= {"o": (HEADS, DIM, WIDTH), "down": (128, WIDTH)}
specs = {name: P("tp") if name in ("o", "down") else P(None, "tp") for name in shapes}
given = {name: random.normal(size=shape) / 8 for name, shape in shapes.items()}
heads = P("tp")
sums = lambda x: lax.psum(x, "tp")
outs = (P(), heads, heads)
divided = jax.shard_map(lambda *a: block(*a, sums), mesh=mesh, in_specs=(*outs, specs), out_specs=outs)
for dtype, error, steps in ((jnp.float32, 1e-4, ((8, 0),)), (jnp.bfloat16, 3e-2, ((1, PAST),))):
    weights = {name: jnp.asarray(value, dtype) for name, value in given.items()}
    for tokens, past in steps:
        x = jnp.asarray(random.normal(size=(tokens, WIDTH)), dtype)
        cache = [jnp.asarray(random.normal(size=(HEADS, past, DIM)), dtype) for _ in range(2)]
        alone = compile(lambda *a: block(*a, lambda x: x), target="trn2")(x, *cache, weights)
        for one, four in zip(alone, compile(divided, target="trn2")(x, *cache, weights), strict=True):
            one, four = (np.asarray(a, np.float32) for a in (one, four))
            print(float(abs(one - four).max() / abs(one).max()) < error)
"""

FOUR = "--xla_force_host_platform_device_count=4"


def test_collectives_over_a_mesh_of_two_axes() -> None:
    assert run(COLLECTIVES, XLA_FLAGS=FOUR) == "True True True\n" * 8


def test_a_decoder_block_on_four_ranks_is_that_of_one() -> None:
    assert run(BLOCK, XLA_FLAGS=FOUR) == "True\n" * 6
