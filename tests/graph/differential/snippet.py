"""A graph as a program to run from the repository's folder."""

from __future__ import annotations

from tests.graph.differential.records import Graph
from tests.graph.differential.run import source

_FRAME = """import numpy as np
{imports}
from tests.graph.differential.records import Input
from tests.graph.differential.run import plain, tensor

inputs = [
{inputs}
]


{source}


{compiled}
for wanted, found in zip(expected, results):
    wanted, found = plain(wanted).astype(float), plain(found).astype(float)
    print(found.shape, np.abs(wanted - found).max())
"""
_WHOLE = '''from tests.graph.differential.judge import outcome
from tests.graph.differential.records import Graph, Input, Node

"""
{source}
"""
print(outcome({graph!r}))
'''
_TORCH = """arrays = [tensor(x.array()) for x in inputs]
with torch.no_grad():
    expected = f(*arrays)
    options = {{"target": "{target}", "lnc": {cores}}}
    results = torch.compile(f, backend="neuron", dynamic=False, options=options)(*arrays)"""
_JAX = """arrays = [jnp.asarray(x.array()) for x in inputs]
expected = f(*arrays)
results = compile(f, target="{target}", lnc={cores})(*arrays)"""


def snippet(graph: Graph) -> str:
    """The program; it prints the largest difference of each result, or what is wrong."""
    if graph.constants or graph.derived:
        return _WHOLE.format(source=source(graph), graph=graph)
    jax = graph.language == "jax"
    imports = "import jax\nimport jax.numpy as jnp\nfrom jax import lax\n\nfrom nki.interop.jax import compile"
    return _FRAME.format(
        imports=imports if jax else "import torch\n\nimport nki.interop.torch",
        inputs="\n".join(f"    {x!r}," for x in graph.inputs),
        source=source(graph),
        compiled=(_JAX if jax else _TORCH).format(target=graph.target, cores=graph.cores),
    )
