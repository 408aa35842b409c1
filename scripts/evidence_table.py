"""What speaks for each instruction on each generation: tests of its meaning and rules, and the source of its cost.

Everything is collected from the declarations and from the examples of tests/isa, which tests/isa/test_registry.py
runs. Prints the table as markdown, with ``--json`` as JSON; ``--write`` writes docs/evidence.md (`make gen`). The exit
code is 1 if a cell is empty; a cell that does not apply holds the reason.
"""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import sys
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.isa import examples  # noqa: E402
from tests.isa.registry import Breaks, Legal  # noqa: E402

import nki  # noqa: E402, F401 - fills the registry
from nki.spec.instruction import REGISTRY, Instruction  # noqa: E402
from nki.target import load_target, target_names  # noqa: E402
from nki.target.model import Target  # noqa: E402

DOCUMENT = ROOT / "docs" / "evidence.md"
INTRODUCTION = """# What speaks for each instruction

Written by scripts/evidence_table.py (`make gen`) from the declarations and the examples of the tests; do not edit.

* **Generations**: how the meaning is tested there. *reference* names the files under tests/isa/examples whose kernels
  are compared with references that are written differently from the instruction, eagerly and compiled
  (tests/isa/test_registry.py). *properties* names tests under tests/isa of what the documents promise where they define
  no values. A dash stands before the reason why the instruction is not there.
* **Rules**: how many have an example that breaks them and is refused, of how many there are.
* **Cost**: where the formula comes from, by number in the list below. Coefficients are those of the target, each with
  its own source (`nki targets`).
"""

Cell = dict[str, Any]


@cache
def all_examples() -> tuple[tuple[str, Legal | Breaks], ...]:
    """The examples of all families, each with its file."""
    names = [module.name for module in pkgutil.iter_modules(examples.__path__)]
    families = {name: importlib.import_module(f"tests.isa.examples.{name}").EXAMPLES for name in names}
    return tuple((f"tests/isa/examples/{name}.py", example) for name, found in families.items() for example in found)


def semantics(name: str, target: str) -> Cell:
    """The tests of what an instruction computes; empty if there are none."""
    legal = [(f, e) for f, e in all_examples() if isinstance(e, Legal) and e.instruction == name]
    here = [(file, e) for file, e in legal if target in e.targets]
    if compared := [(file, e.expected) for file, e in here if e.expected is not None]:
        return {
            "kind": "reference",
            "files": sorted({file for file, _ in compared}),
            "references": sorted({_reference(function) for _, function in compared}),
        }
    tests = sorted(test for test, used in _uses().items() if name in used)
    return {"kind": "properties", "files": sorted({file for file, _ in here}), "tests": tests} if tests else {}


def _reference(function: Any) -> str:
    inner = getattr(function, "func", function)
    return f"{getattr(inner, '__module__', None) or type(inner).__module__}.{inner.__name__}"


@cache
def _uses() -> dict[str, frozenset[str]]:
    """For each test of tests/isa the names that it uses, also by way of other functions of its file."""
    found = {}
    for path in sorted((ROOT / "tests" / "isa").glob("test_*.py")):
        functions = {node.name: node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}
        direct = {name: _names(node) for name, node in functions.items()}
        for test in (name for name in functions if name.startswith("test_")):
            reached, pending = set(), [test]
            while pending:
                if (name := pending.pop()) not in reached:
                    reached.add(name)
                    pending += direct[name] & functions.keys()
            found[f"{path.relative_to(ROOT)}::{test}"] = frozenset().union(*(direct[name] for name in reached))
    return found


def _names(node: ast.AST) -> set[str]:
    parts = list(ast.walk(node))
    return {n.id for n in parts if isinstance(n, ast.Name)} | {n.attr for n in parts if isinstance(n, ast.Attribute)}


def rules(instruction: Instruction[Any]) -> Cell:
    """How many rules there are, and the codes of those that no example breaks."""
    broken = {e.code for _, e in all_examples() if isinstance(e, Breaks)}
    missing = sorted({rule.code for rule in instruction.rules if f"{instruction.name}.{rule.code}" not in broken})
    count = len({rule.code for rule in instruction.rules})
    return {"rules": count, "broken": count - len(missing), "missing": missing}


def cost(instruction: Instruction[Any]) -> Cell:
    """Where the formula comes from; empty if there is none."""
    found = instruction.steps
    return {} if found is None else {k: v for k in ("source", "estimate") if (v := getattr(found, k))}


def evidence(instruction: Instruction[Any], target: Target) -> Cell:
    """All of it for one generation, or why the instruction is not there."""
    if not instruction.exists_on(target):
        return {"absent": f"not on {target.name}: needs feature {instruction.feature}"}
    return {
        "semantics": semantics(instruction.name, target.name),
        "rules": rules(instruction),
        "cost": cost(instruction),
    }


def table() -> dict[str, dict[str, Cell]]:
    """Evidence by instruction and generation."""
    targets = [load_target(name) for name in target_names()]
    return {name: {t.name: evidence(REGISTRY[name], t) for t in targets} for name in sorted(REGISTRY)}


def empty(rows: dict[str, dict[str, Cell]]) -> list[str]:
    """The cells that hold nothing, and rules without an example."""
    found = []
    for name, row in rows.items():
        for target, cell in row.items():
            if "absent" not in cell:
                found += [f"{name}, {target}: no {part}" for part in ("semantics", "cost") if not cell[part]]
                found += [f"{name}, {target}: no example breaks rule {code}" for code in cell["rules"]["missing"]]
    return found


def _tested(cell: Cell) -> str:
    if "absent" in cell:
        return f"— {cell['absent']}"
    found = cell["semantics"]
    if not found:
        return ""
    if found["kind"] == "reference":
        return "reference: " + ", ".join(f"`{Path(file).name}`" for file in found["files"])
    short = [test.removeprefix("tests/isa/").replace("::", " ") for test in found["tests"]]
    return "properties: " + ", ".join(f"`{test}`" for test in short)


def _stated(cell: Cell) -> str:
    parts = [cell["source"]] if "source" in cell else []
    return "; ".join([*parts, f"estimate: {cell['estimate']}"] if "estimate" in cell else parts)


def markdown(rows: dict[str, dict[str, Cell]]) -> str:
    """The document."""
    targets = target_names()
    notes: dict[str, int] = {}
    lines = [INTRODUCTION, f"| instruction | {' | '.join(targets)} | rules | cost |", "|---" * (len(targets) + 3) + "|"]
    for name, row in rows.items():
        counted, stated = rules(REGISTRY[name]), _stated(cost(REGISTRY[name]))
        number = f"({notes.setdefault(stated, len(notes) + 1)})" if stated else ""
        of = f"{counted['broken']}/{counted['rules']}" if counted["rules"] else "none to break"
        lines.append(f"| `{name}` | {' | '.join(_tested(row[t]) for t in targets)} | {of} | {number} |")
    lines += ["", "## Costs", "", *(f"{number}. {stated}" for stated, number in notes.items()), ""]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print or write the table; 1 if a cell is empty."""
    rows = table()
    if "--write" in arguments:
        if not DOCUMENT.exists() or DOCUMENT.read_text() != markdown(rows):
            DOCUMENT.write_text(markdown(rows))
            print(f"wrote {DOCUMENT}")
    else:
        print(json.dumps(rows, indent=1) if "--json" in arguments else markdown(rows), end="")
    missing = empty(rows)
    for line in missing:
        print(line, file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
