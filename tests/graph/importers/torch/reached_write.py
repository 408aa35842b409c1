"""Write the table of `torch_reached` anew: every case is traced by itself, and its graphs run as PyTorch runs them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from functorch.compile import make_boxed_func

from tests.graph.importers.torch import direct, reached, test_operators, test_random
from tests.graph.importers.torch.cases import Case
from tests.graph.importers.torch.test_operators import PARTS, compiled, derivatives, results_of


def _seen(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    reached.see(graph)
    return make_boxed_func(graph)


def _reached(derived: bool, case: Case) -> None:
    function = compiled(results_of([case])[0], _seen)
    if derived:
        derivatives([case], function)
    else:
        function(*case[2])


def _others() -> dict[str, Callable[[], Any]]:
    """What reaches operators that no case does, by the names of `torch_reached.OTHERS`."""
    return {
        "direct-exact": lambda: reached.see(direct.graph_of(direct.exact())[0]),
        "direct-without_values": lambda: reached.see(direct.graph_of(direct.without_values())[0]),
        "direct-random": lambda: reached.see(direct.graph_of(direct.random())[0]),
        "curves": lambda: test_random.drawn([draw for draw, _ in test_random.CURVES.values()]),
        "last-target": test_operators.test_what_follows_the_last_target_counts_for_nothing,
        "whole": lambda: test_random.drawn([draw for draw, _ in test_random.WHOLE.values()]),
    }


def main() -> None:
    """Write the table, and print what nothing reaches.

    What it says already stays if operator and case still exist; without the file, everything is traced.
    """
    wanted = reached.operators()
    names = {*reached.OTHERS, *(name for _, part in PARTS for name, _, _ in part)}
    old = reached.table() if reached.TABLE.exists() else {}
    found = {operator: case for operator, case in old.items() if operator in wanted and case in names}
    steps = [(case[0], partial(_reached, derived, case)) for derived, part in PARTS for case in part]
    for name, reach in [*_others().items(), *reversed(steps)]:
        if wanted == found.keys():
            break
        reached.begin()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reach()
        found.update(dict.fromkeys((reached.SEEN & wanted) - found.keys(), name))
    reached.TABLE.write_text(json.dumps(dict(sorted(found.items())), indent=0) + "\n")
    print("\n".join(sorted(wanted - found.keys())) or "every operator is reached")


if __name__ == "__main__":
    main()
