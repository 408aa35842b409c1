"""The summary of a profile for people."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from nki.core.html import html_table
from nki.core.visible import visible
from nki.profiling.about import About
from nki.profiling.breakdown import Breakdown, breakdown
from nki.profiling.evidence import excess, known_error
from nki.profiling.table import Table

_WIDTH = 120
_LINES = 8
_WAITS = 8
_ROWS = 16

_SPENT: Mapping[str, str] = {
    "busy": "it works",
    "barrier": "all queues meet at a loop",
    "signal": "it waits for another engine or a transfer",
    "unit": "its unit works for another queue",
    "port": "another engine holds the port to its memory",
    "operand": "its own earlier result is not in memory yet",
    "table": "it loads a table for a function",
    "core": "it waits for the other core",
    "trigger": "a transfer is being started",
    "queue": "an earlier transfer moves",
    "idle": "nothing is left to do",
}
"""What a column says of an engine, in a few words; docs/profile.md has all of it."""

_FLOORS: Mapping[str, str] = {
    "dependences": "any order of these instructions",
    "roofline compute": "matmuls at the peak rate",
    "roofline memory": "inputs and results moved once at the full rate of DMA",
}
"""What no change of order beats, and what the hardware could do at best, by the name of the bound."""

_ON_PATH: Mapping[str, str] = {
    "run": "work and moving data",
    "latency": "until results are visible",
    "signal": "signals between engines",
    "trigger": "starting transfers",
    "operand": "until an engine can read its own result",
    "table": "loading tables for functions",
    "core": "waiting for the other core",
    "barrier": "meeting at loops",
    "repeat": "later trips of loops",
    "idle": "unexplained",
}
"""What a kind of interval is, in a few words."""

_MOVED = ("HBM read", "HBM written", "kernels", "instr.")


def summary_text(about: About, tables: Mapping[str, Table], width: int = _WIDTH) -> str:
    """Plain text."""
    return as_text(lambda console: show_summary(console, about, tables), width)


def breakdown_text(found: Breakdown, width: int = _WIDTH) -> str:
    """Plain text of a table by module, class, operation or kernel, with all of its rows."""
    return as_text(lambda console: show_breakdown(console, found), width)


def as_text(show: Callable[[Console], None], width: int) -> str:
    """What is printed to a console, as plain text."""
    console = Console(
        file=io.StringIO(),
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
        color_system=None,
        force_jupyter=False,  # in a notebook the text would go to the page instead of the file
    )
    show(console)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return visible("\n".join(line.rstrip() for line in text.splitlines()) + "\n")


def summary_html(about: About) -> str:
    """The head of the summary and the advice as a table for notebooks."""
    core = _slowest(about)
    rows = [*_work(about, core), ("bound by", about.totals[core]["bound_by"])]
    for number, advice in enumerate(about.advice, 1):
        rows.append((f"advice {number}: {advice['rule']}", f"{advice['message']} → {advice['fix']}; {_saves(advice)}"))
    notes = [
        _origin(about),
        "print(profile.summary()) tells more",
    ]
    return html_table(_takes(about), rows, notes=notes)


def show_summary(console: Console, about: About, tables: Mapping[str, Table]) -> None:
    """Print all parts; of several cores the slowest, which decides how long the kernel takes."""
    core = _slowest(about)
    _head(console, about, core)
    _units(console, about, tables, core)
    _bounds(console, about, core)
    _path(console, tables, core)
    _sources(console, tables, core)
    _modules(console, about, tables)
    _waits(console, tables, core)
    _advice(console, about)


def _origin(about: About) -> str:
    """Where the times come from, and how far off they may be."""
    if not about.is_simulation:
        return str(about.accuracy["text"])
    return known_error(about.target, about.validated, about.accuracy)


def _slowest(about: About) -> int:
    return max(range(about.cores), key=lambda number: about.totals[number]["makespan_ns"])


def _head(console: Console, about: About, core: int) -> None:
    totals = about.totals[core]
    console.print(Text(_takes(about), style="bold"))
    console.print(_origin(about))
    if about.cores > 1:
        each = ", ".join(f"{number}: {in_us(t['makespan_ns'])}" for number, t in enumerate(about.totals))
        console.print(f"{about.cores} cores ({each}); this is core {core}")
    if totals["assumed_loops"]:
        console.print(f"loops {totals['assumed_loops']} have trips that nothing tells: counted as 1")
    grid = Grid.grid(padding=(0, 2))
    for row in _work(about, core):
        grid.add_row(*row)
    console.print(grid)


def _takes(about: About) -> str:
    return f"{about.kernel} on {about.target}: {in_us(about.makespan_ns)}, a launch adds {in_us(about.launch_ns)}"


def _work(about: About, core: int) -> list[tuple[str, str]]:
    """What was done, moved and kept, by name."""
    totals, hardware = about.totals[core], about.hardware
    makespan = totals["makespan_ns"]
    rate = totals["dma_bytes"] / makespan if makespan else 0.0
    rows = [
        ("instructions", f"{totals['instructions']:,.0f}, {totals['transfers']:,.0f} of them transfers"),
        ("DMA", f"{in_bytes(totals['dma_bytes'])}, {rate:.1f} of {hardware['dma_bytes_per_ns']:.1f} GB/s"),
        ("HBM", f"{in_bytes(totals['hbm_read_bytes'])} read, {in_bytes(totals['hbm_write_bytes'])} written"),
    ]
    if totals["matmul_flops"] and makespan:
        tflops = totals["matmul_flops"] / makespan / 1e3
        share = tflops / hardware["peak_tflops"]["bfloat16"]
        rows.append(("matmuls", f"{tflops:.3g} TFLOPS, {share:.1%} of the bfloat16 peak"))
    for name in ("sbuf", "psum"):
        used, size = totals[f"{name}_peak_bytes"], hardware[f"{name}_bytes_per_partition"]
        text = f"{used / 1024:.2f} of {size / 1024:.0f} KiB per partition ({used / size:.0%})"
        rows.append((f"{name.upper()} peak", text))
    return rows


def _units(console: Console, about: About, tables: Mapping[str, Table], core: int) -> None:
    """Where the time of the engines went."""
    time: dict[str, dict[str, float]] = defaultdict(dict)
    for row in tables["time"].rows():
        if row["core"] == core and not row["track"].removeprefix("dma").isdigit():
            time[row["track"]][row["category"]] = row["ns"]
    makespan = about.totals[core]["makespan_ns"]
    categories = ["busy", *sorted({n for each in time.values() for n in each} - {"busy", "idle"}), "idle"]
    grid = Grid(box=None, pad_edge=False)
    grid.add_column("")
    for name in categories:
        grid.add_column(name, justify="right")
    for track, each in time.items():
        shares = [100.0 * each.get(name, 0.0) / makespan if makespan else 0.0 for name in categories]
        grid.add_row(track, *[f"{share:.1f}" if share >= 0.05 else "-" for share in shares])
    console.print(f"\nwhere the time of each engine went, in % of {in_us(makespan)}")
    console.print(grid)
    console.print("; ".join(f"{name}: {_SPENT[name]}" for name in categories if name in _SPENT), style="dim")


def _bounds(console: Console, about: About, core: int) -> None:
    totals = about.totals[core]
    bounds, unit = totals["bounds"], totals["bound_by"]
    told = {f"unit {unit}": f"all work of {unit}", **_FLOORS}
    found = sorted(((bounds.get(name, 0.0), text) for name, text in told.items()), key=lambda item: -item[0])
    text = ", ".join(f"{in_us(ns)} {what}" for ns, what in found if ns > 0.0)
    console.print(f"\nbound by {unit}, the busiest unit; no faster than: {text}")


def _path(console: Console, tables: Mapping[str, Table], core: int) -> None:
    kinds: dict[str, float] = defaultdict(float)
    for row in tables["path"].rows():
        if row["core"] == core:
            kinds[row["kind"]] += row["end_ns"] - row["start_ns"]
    total = sum(kinds.values())
    text = ", ".join(
        f"{ns / total:.0%} {_ON_PATH[kind]}" for kind, ns in sorted(kinds.items(), key=lambda item: -item[1]) if total
    )
    console.print(f"critical path: {text}")


def _sources(console: Console, tables: Mapping[str, Table], core: int) -> None:
    """The lines that the critical path was spent on, with the work of their instructions."""
    instructions, sources = tables["instructions"], tables["sources"]
    critical: dict[tuple[int, str], float] = defaultdict(float)
    work: dict[tuple[int, str], float] = defaultdict(float)
    for row in instructions.rows():
        if row["core"] == core and row["source"] >= 0:
            critical[row["source"], row["opcode"]] += row["critical_ns"]
            work[row["source"], row["opcode"]] += row["cost_ns"] * row["runs"]
    ranked = sorted(critical, key=lambda key: (-critical[key], -work[key]))[:_LINES]
    console.print("\nlines on the critical path: their part of the time, and all work of their instructions")
    grid = Grid(box=None, pad_edge=False)
    for name, justify in (("part", "right"), ("work", "right"), ("instruction", "left"), ("line", "left")):
        grid.add_column(name, justify=justify)  # type: ignore[arg-type]
    for key in ranked:
        if critical[key] > 0.0:
            source = sources.row(key[0])
            place = f"{source['file'].rpartition('/')[2]}:{source['line']} {source['text'][:70]}"
            grid.add_row(in_us(critical[key]), in_us(work[key]), key[1], place)
    console.print(grid)


def _modules(console: Console, about: About, tables: Mapping[str, Table]) -> None:
    """The modules of a model; its operations if it has none. Nothing for a kernel."""
    if len(tables["kernels"]):
        console.print()
        show_breakdown(console, breakdown(about, tables, "module" if len(tables["modules"]) else "operation"), _ROWS)


def show_breakdown(console: Console, found: Breakdown, most: int | None = None) -> None:
    """Print the rows with most time, and a line for the others."""
    nested = found.by in ("module", "class")
    console.print(f"time by {found.by}" + nested * "; self is without the modules inside, the rest is with them")
    grid = Grid(box=None, pad_edge=False)
    grid.add_column(found.by, overflow="fold")
    for name in ("self %", "self", *(("total %", "total") if nested else ()), *_MOVED):
        grid.add_column(name, justify="right", no_wrap=True)
    grid.add_column("bound by")
    share = 100.0 / found.makespan_ns if found.makespan_ns else 0.0
    for row in found.rows[:most]:
        times = [row.self_ns, *([row.total_ns] if nested else [])]
        cells = [cell for ns in times for cell in (f"{share * ns:.1f}", in_us(ns))]
        cells += [in_bytes(row.total_hbm_read_bytes), in_bytes(row.total_hbm_write_bytes)]
        grid.add_row(str(row), *cells, str(row.kernels), f"{row.instructions:,.0f}", row.bound_by)
    console.print(grid)
    more = found.rows[most:] if most is not None else ()
    if more:
        rest = sum(row.self_ns for row in more)
        console.print(f"and {len(more)} more rows with {in_us(rest)} of their own: --by {found.by} shows all")


def _waits(console: Console, tables: Mapping[str, Table], core: int) -> None:
    """The longest waits of engines, all runs, the longest first; a DMA queue has nothing else to do."""
    found = [
        row
        for row in tables["instructions"].rows()
        if row["core"] == core and row["wait_kind"] and not row["queue"].startswith("dma")
    ]
    found.sort(key=lambda row: (-row["wait_ns"] * row["runs"], row["id"]))
    if not found:
        return
    console.print("\nlongest waits of engines")
    grid = Grid(box=None, pad_edge=False)
    for name, justify in (("waited", "right"), ("queue", "left"), ("instruction", "left"), ("for", "left")):
        grid.add_column(name, justify=justify)  # type: ignore[arg-type]
    for row in found[:_WAITS]:
        grid.add_row(
            in_us(row["wait_ns"] * row["runs"]), row["queue"], row["opcode"], f"{row['wait_kind']}: {row['wait_text']}"
        )
    console.print(grid)


def _advice(console: Console, about: About) -> None:
    console.print("\nadvice" if about.advice else "\nno advice: no rule finds a change worth mentioning")
    for number, advice in enumerate(about.advice, 1):
        console.print(f"{number}. [{advice['rule']}] {advice['message']}")
        console.print(f"   -> {advice['fix']}; {_saves(advice)}")
    console.print(_doubt(about), end="")
    if about.advice:
        console.print(f"`nki explain {about.advice[0]['rule']}` tells more")


def _doubt(about: About) -> str:
    """A line on the advice that saves less than the model may be off; empty if there is none."""
    doubtful = [str(number) for number, advice in enumerate(about.advice, 1) if advice["within_error"]]
    if not doubtful:
        return ""
    part = excess(about.accuracy["percent"])
    numbers = " and ".join((", ".join(doubtful[:-1]), doubtful[-1])) if len(doubtful) > 1 else doubtful[0]
    return (
        f"{numbers}: less than what predictions for such kernels may be too long by ({part:.0%}): measure it as well\n"
    )


def _saves(advice: Mapping[str, Any]) -> str:
    most = f"at most {in_us(advice['saving_ns'])} ({advice['share']:.0%})"
    return f"saves about {in_us(advice['expected_ns'])}, {most}"


def in_us(ns: float) -> str:
    """A time as text."""
    return f"{ns / 1000.0:,.2f} µs"


def in_bytes(nbytes: Any) -> str:
    """A size as text."""
    return f"{nbytes / 2**20:.2f} MiB" if nbytes >= 2**20 else f"{nbytes / 2**10:.2f} KiB"
