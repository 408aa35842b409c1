"""What to write instead, in the words of the command line: errors of Python calls speak of Python."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from nki.core.errors import NkiError
from nki.core.lists import is_numbers

EXAMPLE = "128x512:float32"


def on_the_command_line(error: NkiError, arguments: Mapping[str, Any]) -> NkiError:
    """The error with a fix that speaks of --arg, where it is about the arguments of the kernel.

    Args:
        arguments: what the command line gave, by name.
    """
    facts = error.facts
    match error.code:
        case "argument.no-array":
            name = str(facts["arguments"]).split(", ")[0]
            error.fix = f"write {_array(name, arguments.get(name))}"
        case "call.kernel-arguments" if facts.get("kind") == "missing":
            added = " ".join(f"--arg {name}=..." for name in str(facts["names"]).split(", "))
            first = str(facts["names"]).split(", ")[0]
            error.fix = f"add {added}: --arg {first}={EXAMPLE} for an array, --arg {first}=4 for a constant"
        case "call.kernel-arguments" if facts.get("kind") == "unknown":
            close = error.fix.removeprefix("write ").removesuffix("=")
            if close != error.fix:
                error.fix = f"write --arg {close}=..."
    return error


def _array(name: str, value: Any) -> str:
    """An --arg that makes an array: flat integers in a tuple are mostly meant to be its shape, others its values."""
    if isinstance(value, tuple) and value and all(isinstance(size, int) and size > 0 for size in value):
        return f"--arg {name}={'x'.join(map(str, value))}:float32"
    if isinstance(value, list | tuple) and is_numbers(value):
        with contextlib.suppress(ValueError):  # rows of different lengths
            shape = "x".join(map(str, np.shape(value)))
            return f"--arg {name}={shape}:float32, or --arg {name}={shape}:float32:FILE.npy for these values"
    return f"--arg {name}=SHAPE:DTYPE, for example --arg {name}={EXAMPLE}"
