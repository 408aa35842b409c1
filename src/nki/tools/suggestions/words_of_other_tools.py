"""Words of other tools, and what they are called here; and what was meant by words that a command does not take."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from nki.tools.suggestions.nearest_word import nearest

_COMMANDS = MappingProxyType(
    {
        "version": "--version",
        "help": "--help",
        "bench": "profile",
        "benchmark": "profile",
        "time": "profile",
        "perf": "profile",
        "sim": "run",
        "simulate": "run",
        "exec": "run",
        "execute": "run",
        "build": "compile",
        "lint": "check",
        "verify": "check",
        "validate": "check",
        "autotune": "tune",
        "view": "explorer",
        "ui": "explorer",
        "list": "ls",
        "devices": "ls",
        "diff": "compare",
        "dump": "inspect",
        "show": "inspect",
    }
)
_OPTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "--lnc": ("cores", "num-cores", "ncores", "nc", "grid", "logical-nc-config", "world-size"),
        "--target": ("platform", "platform-target", "device", "arch", "instance", "chip", "hardware"),
        "--output": ("out", "save", "save-output", "output-file", "to-file", "dest"),
        "--out": ("output", "save", "output-dir", "output-file", "dir", "dest"),
        "--emit": ("to", "stage", "format", "type"),
        "--print-after": ("after", "print", "dump-after"),
        "--arg": ("args", "input", "inputs", "argument", "param", "shape"),
        "--passes": ("pass", "pipeline"),
        "--reference": ("ref", "baseline", "expected"),
        "--config": ("configs", "configuration", "candidates"),
        "--json": ("as-json", "format-json", "machine"),
    }
)
_FILES = MappingProxyType({".py": "run", ".neff": "run", ".mlir": "opt", ".pt2": "cc", ".stablehlo": "cc"})
_ARGUMENT = re.compile(r"[A-Za-z_]\w*=.+")
_TARGET = re.compile(r"(trn|inf|gen)\d\S*")


def meant_command(words: Sequence[str], commands: Iterable[str]) -> str:
    """What to write in place of words that begin with no command, without ``nki``; empty if nothing is close."""
    first, rest = words[0], " ".join(words[1:2])
    suffix = next((suffix for suffix in _FILES if suffix in first), "")
    if suffix:
        return f"{_FILES[suffix]} {first}"
    other = _COMMANDS.get(first.lower(), "")
    if other == "--help" and rest in commands:
        return f"{rest} --help"
    return other or nearest(first, commands, 0.5)


def meant_option(option: str, words: Sequence[str], options: Sequence[str]) -> str:
    """The option that was probably meant; empty if none is close.

    Args:
        option: what no option is called; of ``-target`` that is ``-t``.
        words: all that was written.
        options: those of the command.
    """
    single = not option.startswith("--")
    if single:
        option = next((word.partition("=")[0] for word in words if word.startswith(option)), option)
    name = option.lstrip("-").partition("=")[0].lower()
    long = [each for each in options if each.startswith("--")]
    if f"--{name}" in long:
        return f"--{name}"
    other = next((each for each in long if name in _OPTIONS.get(each, ())), "")
    if other or not single or len(name) > 1:
        return other or nearest(f"--{name}", long, 0.7)
    return next((each for each in long if each.startswith(f"--{name}")), "")


def meant_words(words: Sequence[str], options: Sequence[str]) -> str:
    """What to write in place of words that a command takes no more of; empty if nobody knows."""
    if "--arg" in options and all(_ARGUMENT.fullmatch(word) for word in words):
        return " ".join(f"--arg {word}" for word in words)
    if "--target" in options and len(words) == 1 and _TARGET.fullmatch(words[0]):
        return f"--target {words[0]}"
    return ""
