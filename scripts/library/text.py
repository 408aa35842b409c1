"""The text of a kernel's page, and of the index, from what is written in the kernel and what was measured of it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

import numpy as np
from benchmarks.library.case import Case
from scripts.library.docstrings import Docstring, markdown
from scripts.library.patterns import patterns_of
from scripts.library.published import LATER, PAGES, without_kernel

from nkilib.catalogue import CATALOGUE, kernel

MARK = "<!-- Written by scripts/library_pages.py from the kernel and from benchmarks/library/results; do not edit. -->"


def page(name: str, record: Mapping[str, Any] | None, cases: Mapping[str, Case], roofline: bool) -> str:
    """The page of a kernel, of which nothing may be measured; `roofline` says whether there is a picture of it."""
    function = kernel(name)
    module = inspect.getmodule(function.func)
    told = Docstring(function.func.__doc__ or "")
    parts = [
        f"# {name}\n\n{MARK}",
        markdown((module.__doc__ if module else "") or ""),
        "## Calling it",
        _import(name),
        told.text,
        _code(_signature(name, function.func)),
        *told.sections(),
        *([] if record is None else [_call(name, cases[record["cases"][0]["key"]])]),
        "## Derivative",
        _derivative(name, function),
        "## In models",
        _in_models(name),
        "## How fast it is",
        *(
            _speed(name, record, cases, roofline)
            if record
            else ["It was not measured: the benchmark has no case of it."]
        ),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


_UNMEASURED = "It was not measured: the benchmark has no case of it."


def _speed(name: str, record: Mapping[str, Any], cases: Mapping[str, Case], roofline: bool) -> list[str]:
    return [
        _table(record, cases),
        _picture(f"{name} under the roofline", f"pictures/{name}.roofline.svg") if roofline else "",
        "## Where the time goes",
        _time(name, record["timeline"]),
    ]


def _code(text: str, language: str = "text") -> str:
    return f"```{language}\n{text}\n```"


def _import(name: str) -> str:
    entry = CATALOGUE[name]
    places = dict.fromkeys([entry.documented or entry.module, entry.module, "nkilib.kernels"])
    first, *others = (f"from {place} import {name}" for place in places)
    page_of = f" It follows the published page `nki/library/api/{entry.page}.rst`." if entry.page else ""
    return f"{_code(first, 'python')}\n\n`{'` and `'.join(others)}` import the same kernel.{page_of}"


def _signature(name: str, function: Any) -> str:
    lines = [f"{name}("]
    for each in inspect.signature(function).parameters.values():
        if each.kind is inspect.Parameter.KEYWORD_ONLY and "    *," not in lines:
            lines.append("    *,")
        default = "" if each.default is each.empty else f" = {_constant(each.default)}"
        lines.append(f"    {each.name}: {each.annotation}{default},")
    return "\n".join([*lines, ")"])


def _constant(value: Any) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    told = repr(value)
    return f"{type(value).__name__}(...)" if " at 0x" in told else told


def _call(name: str, case: Case) -> str:
    """The first case as a call, with shapes in the place of arrays."""
    lines = [f"    {parameter}={_value(value)}" for parameter, value in case.shapes().items()]
    cores = f"[{case.lnc}]" if case.lnc > 1 else ""
    call = "\n".join([f"result = {name}{cores}(", *lines, ")"])
    return f"### A call\n\n{case.name}:\n\n{_code(call)}\n\n{_ARRAYS} `{name}[2](...)` runs on two cores."


_ARRAYS = """\
Arrays are those of NumPy, tensors of PyTorch on the CPU or on the device `neuron`, or arrays of JAX, and results are of
the same kind ([library.md](../library.md)). `torch.compile(..., backend="neuron")`, `jax.jit` and `jax.vmap` make the
call a part of their programs ([pytorch.md](../pytorch.md), [jax.md](../jax.md))."""


def _value(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"...,  # {value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, np.generic):
        value = value.item()
    return f"{_constant(value)},"


def _derivative(name: str, function: Any) -> str:
    entry = CATALOGUE[name]
    linked = f"[`{entry.backward}`]({entry.backward}.md)"
    if function.derivative is not None:
        own = f", which {linked} computes" if entry.backward in CATALOGUE else ""
        return f"It has one{own}: tensors that require gradients take part in autograd, and `jax.grad` uses it."
    if entry.backward:
        return f"{linked} is the kernel of its gradient. A call is not differentiated by itself."
    return "It has none: a tensor that requires a gradient is refused. `kernel.defvjp` gives it one."


def _in_models(name: str) -> str:
    found = patterns_of(name)
    if not found:
        return "The graph compiler puts it into no model by itself."
    names = f"pattern{'s' if len(found) > 1 else ''} {' and '.join(f'`{each}`' for each in found)}"
    return f"The graph compiler puts it into models by the {names} ([graph.md](../graph.md#patterns-of-your-own))."


_EXPLAINED = """\
Times are predicted by the timing model ([timing.md](../timing.md)), for the slowest core; nothing was measured on a
device. The share of the roofline is that of the least time for the case: products at the peak rate, or each argument
and result moved once at the documented full rate of DMA. It can be above 100 %, since DMA writes to HBM faster than
that. The error is the largest difference from the reference in NumPy, as a part of the number itself, or of the root
mean square of the result where that is larger.
*Published* is the kernel of that name in the published library (2.29), for the same call on the same compiler and
model; *refused* means that it does not take this call."""


def _table(record: Mapping[str, Any], cases: Mapping[str, Case]) -> str:
    head = ["", "case", "error", "µs", "share of roofline", "bound by", "HBM MB", "published µs"]
    rows = [_row(number, row, cases[row["key"]]) for number, row in enumerate(record["cases"], 1)]
    return "\n".join([_EXPLAINED, "", *_grid([head, *rows])])


def _row(number: int, row: Mapping[str, Any], case: Case) -> list[str]:
    cores = f", {case.lnc} cores" if case.lnc > 1 else ""
    target = "" if case.target == "trn2" else f", {case.target}"
    share = "" if row["roofline"] is None else f"{row['roofline']:.0%} ({row['least_by']})"
    error = "" if row["error"] is None else f"{row['error']:.1e}"
    published = _published(row) if row["official_ns"] is None else f"{row['official_ns'] / 1e3:,.1f}"
    moved = f"{row['hbm_bytes'] / 1e6:,.1f}"
    name = f"{case.name}{cores}{target}"
    return [str(number), name, error, f"{row['ns'] / 1e3:,.1f}", share, row["bound_by"], moved, published]


def _published(row: Mapping[str, Any]) -> str:
    """Why there is no time of the published kernel."""
    absent = row["note"].startswith(("ModuleNotFoundError", "AttributeError"))
    return "" if absent or not row["note"] else "refused"


def _grid(rows: Iterable[list[str]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"
        if not number:
            yield f"|{'---|' * len(row)}"


def _picture(title: str, place: str) -> str:
    return f"![{title}]({place})"


def _time(name: str, timeline: Mapping[str, Any]) -> str:
    kinds = list(dict.fromkeys(kind for spent in timeline["time"].values() for kind in spent))
    rows = [
        [engine, *(f"{spent[kind]:.1%}" if kind in spent else "" for kind in kinds)]
        for engine, spent in timeline["time"].items()
    ]
    parts = [
        _picture(f"Engines of {name} over time", f"pictures/{name}.svg"),
        f"*{timeline['case']}*: {timeline['ns'] / 1e3:,.1f} µs, {timeline['accuracy']}. {_bounds(timeline)}",
        "\n".join(_grid([["engine", *kinds], *rows])),
        _advice(timeline["advice"]),
    ]
    return "\n\n".join(parts)


def _bounds(timeline: Mapping[str, Any]) -> str:
    units = {name: ns for name, ns in timeline["bounds"].items() if name.startswith("unit ")}
    busiest = max(units, key=lambda name: units[name])
    sbuf, psum = (timeline[f"{memory}_peak_bytes"] / 1024 for memory in ("sbuf", "psum"))
    return (
        f"What bounds it is {busiest.removeprefix('unit ')}, whose work alone takes {units[busiest] / 1e3:,.1f} µs. "
        f"SBUF holds at most {sbuf:,.0f} KiB on a partition, PSUM {psum:,.0f} KiB."
    )


def _advice(advice: Iterable[Mapping[str, Any]]) -> str:
    lines = [f"* {each['message']} ({each['share']:.0%} of the time): {each['fix']}." for each in advice]
    return "\n".join(["`nki profile` advises:", "", *lines]) if lines else "`nki profile` has no advice."


def index(records: Mapping[str, Mapping[str, Any]]) -> str:
    """The page that lists all kernels, and what is not there yet."""
    parts = [f"# The kernel library\n\n{MARK}", _ABOUT]
    for title, place in (("Kernels", "nkilib.core."), ("Experimental kernels", "nkilib.experimental.")):
        names = sorted((name for name, entry in CATALOGUE.items() if entry.module.startswith(place)), key=str.lower)
        head = ["kernel", "what it computes", "µs", "share of roofline"]
        parts += [f"## {title}", "\n".join(_grid([head, *(_line(name, records.get(name)) for name in names)]))]
    missing = without_kernel()
    parts += [
        "## What is not here yet",
        f"Release 2.32 of the published documentation has {len(PAGES)} pages of kernels, of which "
        f"{len(PAGES) - len(missing)} have a kernel here. These {len(missing)} have none:",
        f"{', '.join(f'`{each}`' for each in missing)}.",
        f"Release 2.33 has {LATER} pages. Which came after 2.32 is not known here, and none of them has a kernel.",
    ]
    return "\n\n".join(parts) + "\n"


_ABOUT = """\
`nkilib` has kernels with the names, import paths and signatures of the published NKI Library, called like functions
from PyTorch, JAX and NumPy. Where the published library is installed, `import nkilib` gives that one;
`NKILIB_FORCE_BUNDLED_LIBRARY=1` keeps this one.

Each kernel is one file that begins with its mathematics, layouts, limits and plan, and has its reference in NumPy
beside it. What a kernel does not compute it refuses with an error that names the limit. Its page has the times that the
timing model predicts for realistic calls; those in the tables below are of the page's first case.
[library.md](../library.md) says what is the same for all, and how one is written."""


def _line(name: str, record: Mapping[str, Any] | None) -> list[str]:
    sentence = re.split(r"(?<=[.])\s|\n\n", inspect.getdoc(kernel(name).func) or "", maxsplit=1)[0].replace("\n", " ")
    if record is None:
        return [f"[`{name}`]({name}.md)", markdown(sentence), "", ""]
    row = record["cases"][0]
    share = "" if row["roofline"] is None else f"{row['roofline']:.0%}"
    return [f"[`{name}`]({name}.md)", markdown(sentence), f"{row['ns'] / 1e3:,.1f}", share]
