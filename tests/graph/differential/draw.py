"""Random graphs: a number makes the same graph, target and cores in every process."""

from __future__ import annotations

import numpy as np

from tests.graph.differential.bound import Bound, UndefinedError, point
from tests.graph.differential.gradients import SMOOTH
from tests.graph.differential.operator import COMPOSED, MOST, Draw, NoFitError
from tests.graph.differential.records import FLOATS, Graph, Node
from tests.graph.differential.table import TABLE

SEEDS = 1_000_000
"""Graphs of one seed; number n of seed s is ``graph(s * SEEDS + n)``."""

_TRIES = 60

INDICES = ("index", "unique")


def graph(seed: int) -> Graph:
    """The graph of a number."""
    choices = Draw(seed, "torch")
    front = choices.random.choices(("torch", "jax", "dynamo"), (60, 36, 4))[0]
    target = choices.one("trn1", "trn2", "trn3")
    cores = 2 if target != "trn1" and choices.chance(0.3) else 1
    native = choices.random.choices(("0", "auto", "always"), (80, 10, 10))[0]
    d = Draw(seed, "jax" if front == "jax" else "torch")
    d.special = choices.chance(0.08)
    derived = front != "dynamo" and choices.chance(0.1)
    nodes = _derived(d, choices.random.randint(2, 6)) if derived else _nodes(d, choices.random.randint(2, 10))
    inputs, renamed = sorted(d.inputs), {}
    for new, old in enumerate([*inputs, *nodes]):
        renamed[old] = new
    made = [Node(n.operator, tuple(renamed[k] for k in n.operands), n.attributes) for n in nodes.values()]
    results = [renamed[k] for k in _results(d, nodes)]
    several = not derived and front != "dynamo" and choices.chance(0.2)
    constants = tuple(k for k in range(1, len(inputs)) if several and choices.chance(0.5))
    drawn = tuple(d.inputs[k] for k in inputs)
    return Graph(seed, front, target, cores, native, drawn, tuple(made), tuple(results), constants, derived)


def _nodes(d: Draw, count: int) -> dict[int, Node]:
    """The operators, by the number of the value that they make."""
    dtype = d.one("float32", "float32", "float32", "float32", "bfloat16", "float16", "int32", "uint8", "bool")
    d.fresh(d.shape(), dtype)
    names = [name for name, operator in TABLE.items() if operator.code(d.language)]
    return _grown(d, count, names)


def _derived(d: Draw, count: int) -> dict[int, Node]:
    """Operators that have derivatives, on float32."""
    d.special = False
    d.only = ("float32", "bool")
    d.fresh(d.shape(), "float32")
    names = [name for name in TABLE if name in SMOOTH and TABLE[name].code(d.language)]
    return _grown(d, count, names)


def _grown(d: Draw, count: int, names: list[str]) -> dict[int, Node]:
    nodes: dict[int, Node] = {}
    weights = [TABLE[name].weight for name in names]
    for _ in range(_TRIES):
        if len(nodes) == count:
            break
        _step(d, nodes, d.random.choices(names, weights)[0])
    if not nodes:
        nodes[len(d.bounds)] = Node("unsqueeze", (0,), {"axis": 0})
        d.bounds.append(evaluated(nodes[len(d.bounds)], [d.bounds[0]]))
    return nodes


def _step(d: Draw, nodes: dict[int, Node], name: str) -> None:
    """One more operator, if there is something for it, and something is known of its result."""
    before = len(d.bounds)
    try:
        operands, attributes = TABLE[name].draw(d)
        if d.language == "jax" and name in COMPOSED and d.bounds[operands[0]].dtype != "float32":
            raise NoFitError
        if d.only and any(d.bounds[k].dtype not in d.only and d.inputs[k].kind not in INDICES for k in operands):
            raise NoFitError
        node = Node(name, tuple(operands), attributes)
        made = evaluated(node, [d.bounds[k] for k in operands])
        if not 0 < made.size <= MOST or vague(made, 0.5 if d.special else 0.05):
            raise NoFitError
    except (NoFitError, UndefinedError):
        del d.bounds[before:]
        for number in [k for k in d.inputs if k >= before]:
            del d.inputs[number]
        return
    nodes[len(d.bounds)] = node
    d.bounds.append(made)


def evaluated(node: Node, operands: list[Bound]) -> Bound:
    """The bound of one operator. Raises UndefinedError, and what NumPy raises for shapes that do not fit."""
    with np.errstate(all="ignore"):
        return TABLE[node.operator].bound(node.attributes, *operands)


def vague(bound: Bound, most: float) -> bool:
    """True if of more than a part of the elements too little is known."""
    if not bound.size:
        return False
    with np.errstate(all="ignore"):
        width = bound.high - bound.low
        if not bound.is_float:
            return bool(np.mean(width > 0) > most)
        finite = np.where(np.isfinite(bound.magnitude), bound.magnitude, 0.0)
        scale = np.maximum(finite, np.sqrt(np.mean(np.square(np.minimum(finite, 1e100)))))
        allowed = 0.01 if bound.dtype in FLOATS else 0.3
        unknown = ~(width <= allowed * scale) & ~np.isnan(bound.low) & (bound.low != bound.high)
    return bool(np.mean(unknown) > most)


def _results(d: Draw, nodes: dict[int, Node]) -> list[int]:
    """What nothing uses, and now and then something else."""
    used = {k for node in nodes.values() for k in node.operands}
    results = [k for k in nodes if k not in used]
    results += [k for k in nodes if k in used and d.chance(0.1)]
    return results[-5:]


def bounds_of(graph: Graph) -> list[Bound]:
    """The bounds of all values."""
    values = [point(x.array(), x.dtype) for x in graph.inputs]
    for node in graph.nodes:
        values.append(evaluated(node, [values[k] for k in node.operands]))
    return values
