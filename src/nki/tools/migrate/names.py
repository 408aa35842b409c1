"""What names in a file stand for: ``nl.load`` and ``neuronxcc.nki.language.load`` are the same function."""

from __future__ import annotations

from typing import Any, ClassVar

import libcst as cst

from nki.tools.migrate.nodes import walk

_SHORT = {
    "neuronxcc.nki.language": "nl",
    "neuronxcc.nki.isa": "nisa",
    "neuronxcc.nki.compiler": "ncc",
    "neuronxcc.nki.typing": "nt",
    "neuronxcc.nki": "nki",
    "nki.beta1.language": "nl",
    "nki.beta1.isa": "nisa",
    "nki.beta1.compiler": "ncc",
    "nki.beta1.typing": "nt",
    "nki.beta1": "nki",
    "numpy": "np",
    "math": "math",
    "torch_neuronx": "torch_neuronx",
}
"""How names are called here, whatever the file calls them."""
_TODAY = {"nki.language": "nl", "nki.isa": "nisa", "nki": "nki"}
"""Names in files of NKI 0.2 and later."""


class Names:
    """The names that import statements bind, in the whole file.

    Attributes:
        bound: name -> what it stands for, dotted.
        is_old: whether the file imports the first NKI.
    """

    def __init__(self, module: cst.Module) -> None:
        self.bound: dict[str, str] = {}
        self._short = _SHORT
        for node in walk(module):
            if type(node) in self._BINDING:
                self._BINDING[type(node)](self, node)
        self.is_old = any(dotted.startswith(("neuronxcc", "nki.beta1")) for dotted in self.bound.values())
        self._short = _SHORT if self.is_old else {**_SHORT, **_TODAY}

    def _import(self, node: cst.Import) -> None:
        for alias in node.names:
            dotted = dotted_name(alias.name)
            if alias.asname is not None:
                self._bind(alias.asname.name, dotted)
            else:
                top = dotted.partition(".")[0]
                self._bind(alias.name if top == dotted else cst.Name(top), top)

    def _import_from(self, node: cst.ImportFrom) -> None:
        if isinstance(node.names, cst.ImportStar) or node.module is None or node.relative:
            return
        module = dotted_name(node.module)
        for alias in node.names:
            name = alias.asname.name if alias.asname is not None else alias.name
            self._bind(name, f"{module}.{dotted_name(alias.name)}")

    def _assign(self, node: cst.Assign) -> None:
        """``nki_jit = nki.trace`` gives a name to what another one stands for."""
        target = node.targets[0].target
        if len(node.targets) == 1 and isinstance(target, cst.Name) and isinstance(node.value, cst.Attribute):
            root: cst.BaseExpression = node.value
            while isinstance(root, cst.Attribute):
                root = root.value
            dotted = dotted_name(node.value)
            if isinstance(root, cst.Name) and self.canonical(node.value) in (
                "nki.trace",
                "nki.jit",
                "nki.simulate_kernel",
            ):
                self.bound[target.value] = self.bound[root.value] + dotted[len(root.value) :]

    _BINDING: ClassVar[dict[type[cst.CSTNode], Any]] = {
        cst.Import: _import,
        cst.ImportFrom: _import_from,
        cst.Assign: _assign,
    }

    def _bind(self, name: cst.BaseExpression, dotted: str) -> None:
        if isinstance(name, cst.Name):
            self.bound[name.value] = dotted

    def canonical(self, node: cst.CSTNode) -> str:
        """``nl.load``, ``nisa.activation``, ``np.add`` ...; "" for what is none of these."""
        parts: list[str] = []
        while isinstance(node, cst.Attribute):
            parts.append(node.attr.value)
            node = node.value
        if not isinstance(node, cst.Name) or node.value not in self.bound:
            return ""
        dotted = ".".join([self.bound[node.value], *reversed(parts)])
        for package, short in self._short.items():
            if dotted == package:
                return short
            if dotted.startswith(f"{package}."):
                rest = dotted[len(package) + 1 :]
                for inner, name in (("language", "nl"), ("isa", "nisa"), ("compiler", "ncc"), ("typing", "nt")):
                    if short == "nki" and (rest == inner or rest.startswith(f"{inner}.")):
                        return f"{name}{rest[len(inner) :]}"
                return f"{short}.{rest}"
        return ""


def dotted_name(node: cst.CSTNode) -> str:
    """``a.b.c`` of an import statement."""
    if isinstance(node, cst.Attribute):
        return f"{dotted_name(node.value)}.{node.attr.value}"
    return node.value if isinstance(node, cst.Name) else ""
