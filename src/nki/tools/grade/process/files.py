"""The folder of a candidate: its file, or its package, and what it was said to need; nothing else is copied."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nki.core.errors import UsageError
from nki.core.source import UNKNOWN

_MOST_FILES = 2000


@dataclass(frozen=True, slots=True)
class Files:
    """What a kernel is made of, as read before any candidate runs.

    Attributes:
        path: the file of the kernel.
        name: of the kernel in it; empty if it is the only one.
        inside: where the file lies in the folder.
        contents: all files by their place in the folder.
    """

    path: Path
    name: str
    inside: Path
    contents: dict[Path, bytes]

    @property
    def root(self) -> Path:
        """The folder of the user that the copy stands for."""
        return self.path.parents[len(self.inside.parts) - 1]

    @property
    def digest(self) -> str:
        """SHA-256 of the file of the kernel."""
        return hashlib.sha256(self.contents[self.inside]).hexdigest()

    def copy_to(self, folder: Path) -> None:
        """Write everything."""
        for place, data in self.contents.items():
            target = folder / place
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


def read_files(text: str, more: Sequence[Path], hidden: Sequence[Path]) -> Files:
    """Read a kernel's file; of a package, all of its Python files.

    Args:
        text: ``FILE::KERNEL`` or ``FILE``.
        more: files that it imports from beside it.
        hidden: resolved paths of files that it must not see.

    Raises:
        UsageError: "kernel.file" for a file that cannot be read, "grade.same-file" for one that holds what is hidden.
    """
    file, _, name = text.partition("::")
    path = Path(file)
    if not path.is_file():
        fix = "write FILE::KERNEL, for example kernels.py::softmax"
        raise UsageError("kernel.file", f"there is no file {file!r}", fix=fix, location=UNKNOWN)
    path = path.resolve()
    if path in hidden:
        raise UsageError(
            "grade.same-file",
            f"{file} holds the kernel and what judges it",
            rule="a candidate cannot see the reference and the baseline",
            fix="put the kernel into a file of its own",
            location=UNKNOWN,
        )
    root = path.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    inside = path.relative_to(root)
    top = root / inside.parts[0]
    parts = [path] if top == path else sorted(top.rglob("*.py"))[:_MOST_FILES]
    contents = {part.relative_to(root): _read(part) for part in parts if part.resolve() not in hidden}
    contents |= {Path(part.name): _read(part) for part in more}
    return Files(path, name, inside, contents)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        message = f"{path} cannot be read: {problem.strerror}"
        raise UsageError("kernel.file", message, fix="check the path", location=UNKNOWN) from None
