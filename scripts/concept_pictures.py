"""Draws the pictures of docs/concepts.md: from the data of trn2, and from the profile of a kernel.

It also writes the page's table of generations. The same data gives the same bytes. Colours follow the reader's light or
dark mode. Run by `make gen`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from nki.driver.launch import Launch
from nki.kernel import Kernel
from nki.target import load_target, target_names
from nki.target.model import Target

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
PAGE = FOLDER.parent / "concepts.md"
HEADING = "## The generations\n\n"
TARGET = "trn2"
KIB, MIB, GIB = 2**10, 2**20, 2**30

STYLE = """
  text { font: 13px sans-serif; fill: #1c2430; }
  .small { font-size: 11px; fill: #56606e; }
  .strong { font-weight: bold; }
  rect { fill: #eef1f5; stroke: #6b7684; }
  .a { fill: #bfdcf2; } .b { fill: #f6d9a8; } .c { fill: #bfe5d0; } .none { fill: none; }
  line, path { stroke: #3b4654; fill: none; }
  .tip { fill: #3b4654; stroke: none; }
  .thin { stroke: #c3c9d1; stroke-width: 0.5; }
  .dashed { stroke-dasharray: 4 3; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6e9ee; }
    .small { fill: #a9b2bf; }
    rect { fill: #232a34; stroke: #8a95a3; }
    .a { fill: #1f4e73; } .b { fill: #6b4a12; } .c { fill: #1d5a3c; } .none { fill: none; }
    line, path { stroke: #b7c0cc; }
    .tip { fill: #b7c0cc; }
    .thin { stroke: #3d4653; }
  }
"""


@dataclass
class Picture:
    """An SVG of a size in pixels, which grows by one element with each call."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, w: float, h: float, kind: str = "") -> None:
        """A rectangle; `kind` is one of the classes of the style."""
        self.parts.append(f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="3"/>')

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "middle", turn: int = 0) -> None:
        """One line of text, by its middle unless `anchor` is start or end; `turn` in degrees."""
        turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
        self.parts.append(
            f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turned}>{escape(text)}</text>'
        )

    def named(self, x: float, y: float, w: float, h: float, lines: list[str], kind: str = "") -> None:
        """A box with lines of text in its middle, the first one strong."""
        self.box(x, y, w, h, kind)
        top = y + h / 2 - 8 * (len(lines) - 1) + 4
        for i, line in enumerate(lines):
            self.text(x + w / 2, top + 16 * i, line, "small" if i else "strong")

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "") -> None:
        """A line without tips."""
        self.parts.append(f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float, both: bool = False, kind: str = "") -> None:
        """A line with a tip at its end, or at both ends."""
        self.line(x1, y1, x2, y2, kind)
        self._tip(x1, y1, x2, y2)
        if both:
            self._tip(x2, y2, x1, y1)

    def _tip(self, x1: float, y1: float, x2: float, y2: float) -> None:
        length = max(((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5, 1e-9)
        dx, dy = (x2 - x1) / length * 7, (y2 - y1) / length * 7
        left, right = (x2 - dx - dy / 2, y2 - dy + dx / 2), (x2 - dx + dy / 2, y2 - dy - dx / 2)
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in ((x2, y2), left, right))
        self.parts.append(f'<polygon class="tip" points="{points}"/>')

    def svg(self) -> str:
        """The file's text."""
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
        return (
            "\n".join([head, f"<title>{escape(self.title)}</title>", f"<style>{STYLE}</style>", *self.parts, "</svg>"])
            + "\n"
        )


def memories(t: Target) -> Picture:
    """Where data can be, and which engine reads and writes what."""
    p = Picture(800, 330, f"The memories and engines of a core of {t.title}")
    p.named(10, 90, 120, 120, ["HBM", f"{t.hbm.bytes // GIB} GiB", f"for {t.cores_per_device} cores"])
    p.named(180, 110, 100, 80, ["DMA", f"{t.dma.engines} engines"], "a")
    row = f"{t.partitions} partitions"
    p.named(330, 20, 130, 250, ["SBUF", row, f"of {t.sbuf.bytes_per_partition // KIB} KiB", _total(t, "sbuf")])
    p.named(
        660, 20, 130, 190, ["PSUM", row, f"of {t.psum.bytes_per_partition // KIB} KiB", _total(t, "psum"), _banks(t)]
    )
    p.arrow(130, 150, 180, 150, both=True)
    p.arrow(280, 150, 330, 150, both=True)
    engines = (("Tensor", "products of matrices"), ("Vector", "two tensors, sums"), ("Scalar", "functions: exp, ..."))
    for i, (name, does) in enumerate(engines):
        y = 20 + 66 * i
        p.named(490, y, 140, 54, [name, does], "c")
        p.arrow(460, y + 27, 490, y + 27, both=i > 0)
        p.arrow(630, y + 27, 660, y + 27, both=i > 0)
    p.named(490, 218, 140, 54, ["GpSimd", "everything else"], "c")
    p.arrow(460, 245, 490, 245, both=True)
    if "gpsimd_psum" in t.features:
        p.arrow(630, 225, 660, 205, both=True)
    p.named(180, 230, 100, 44, ["Sync", "starts transfers"], "b")
    p.arrow(230, 230, 230, 190, kind="dashed")
    p.text(400, 310, f"One core of {t.title}. HBM belongs to the whole device.", "small")
    return p


def _total(t: Target, memory: str) -> str:
    each = {"sbuf": t.sbuf.bytes_per_partition, "psum": t.psum.bytes_per_partition}[memory]
    return f"{each * t.partitions // MIB} MiB in all"


def _banks(t: Target) -> str:
    return f"{t.psum.banks} banks of {t.psum.bank_bytes // KIB} KiB"


def tiles(t: Target, rows: int = 200, columns: int = 1000) -> Picture:
    """A matrix with more rows than partitions, in HBM and in SBUF."""
    p = Picture(800, 330, "A matrix of 200 rows is cut into pieces of at most 128 partitions")
    scale = 200 / t.partitions
    last = rows - t.partitions
    p.text(105, 20, f"HBM: {rows} x {columns:,} float32", "strong")
    p.named(30, 30, 150, t.partitions * 1.2, [f"{t.partitions} rows"], "a")
    p.named(30, 30 + t.partitions * 1.2, 150, last * 1.2, [f"{last} rows"], "b")
    top, left, width = 50.0, 330.0, 440.0
    p.text(left + width / 2, 20, f"SBUF: {t.partitions} partitions", "strong")
    p.box(left, top, width, t.partitions * scale, "none")
    each = columns * 4
    p.named(left, top, 120, t.partitions * scale, ["piece 1", f"{each:,} bytes"], "a")
    p.named(left + 120, top, 120, last * scale, ["piece 2", f"{each:,} bytes"], "b")
    for partition in range(0, t.partitions, 4):
        p.line(left, top + partition * scale, left + width, top + partition * scale, "thin")
    for partition in (0, last, t.partitions):
        p.text(left - 8, top + partition * scale + 4, str(partition), "small", "end")
    p.text(left - 50, top + 100, "partition dimension", turn=-90)
    p.arrow(left, top + 215, left + width, top + 215)
    free = f"free dimension: {t.sbuf.bytes_per_partition // KIB} KiB in each partition (not to scale)"
    p.text(left + width / 2, top + 235, free)
    p.arrow(185, 30 + t.partitions * 0.6, left - 70, 30 + t.partitions * 0.6)
    p.text(400, 315, "Every instruction works on all partitions of its tile at the same time.", "small")
    return p


def matmul(t: Target) -> Picture:
    """What lies where in a product on the Tensor engine."""
    p = Picture(800, 400, "nc_matmul: stationary and moving have the summed dimension k on their partitions")
    rows, wide, most = t.pe.rows, t.pe.max_stationary_free, t.pe.max_moving_free_f32
    p.named(40, 60, 300, 130, ["moving", f"k x n, n at most {most}", "in SBUF"], "b")
    p.named(440, 60, 130, 130, ["stationary", f"k x m, m at most {wide}", "held by the array"], "a")
    p.named(440, 240, 300, 130, ["product", "m x n", "in PSUM: m on the partitions"], "c")
    p.text(190, 50, "one column after the other", "small")
    p.text(505, 50, f"Tensor: {rows} x {t.pe.columns} multipliers", "small")
    p.text(30, 125, f"k: at most {rows} partitions", "small", turn=-90)
    p.arrow(340, 125, 440, 125)
    p.arrow(505, 190, 505, 240)
    p.text(515, 220, "sums over k run down the array", "small", "start")
    p.text(200, 300, "product = stationary.T @ moving", "strong")
    p.text(200, 322, f"{most} float32 fill one bank of PSUM", "small")
    return p


def add(a, b):  # type: ignore[no-untyped-def]
    """The kernel of the timeline: three pieces of 128 rows."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for piece in range(PIECES):
        here = nl.ds(piece * 128, 128)
        x = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        y = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=a[here], name=f"load a {piece + 1}")
        nisa.dma_copy(dst=y, src=b[here], name=f"load b {piece + 1}")
        nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add, name=f"add {piece + 1}")
        nisa.dma_copy(dst=out[here], src=x, name=f"store {piece + 1}")
    return out


def timeline(t: Target) -> Picture:
    """When the three pieces are loaded, added and stored, by the timing model; arrows are signals."""
    array = np.ones((PIECES * 128, 2048), np.float32)
    profile = nki.profile(Kernel(Launch(add, target=t.name)))(array, array)
    rows = {row["name"]: row for row in profile["instructions"].rows()}
    p = Picture(800, 300, f"Three pieces of an addition on {t.title}, by the timing model")
    left, scale = 90.0, 690.0 / profile.makespan_ns
    lanes = [[f"{what} {n + 1}" for n in range(PIECES)] for what in ("load a", "load b", "add")]
    stores = [f"store {n + 1}" for n in range(PIECES)]
    top: dict[str, float] = {}
    for i, lane in enumerate([*lanes, stores[::2], stores[1::2]]):
        y = 20.0 + 45 * i
        p.text(left - 10, y + 20, "Vector" if i == 2 else "DMA", anchor="end")
        p.line(left, y + 36, left + 690, y + 36, "thin")
        free = left
        for name in lane:
            start, move, end = (left + scale * rows[name][key] for key in ("start_ns", "move_ns", "end_ns"))
            if move > max(start, free):
                p.box(max(start, free), y + 6, move - max(start, free), 18, "none dashed")
            p.named(move, y, end - move, 30, [name], "aacbb"[i])
            top[name], free = y, end
    for n in range(1, PIECES + 1):
        for before, after in ((f"load b {n}", f"add {n}"), (f"add {n}", f"store {n}")):
            x1, x2 = left + scale * rows[before]["end_ns"], left + scale * rows[after]["start_ns"]
            p.arrow(x1, top[before] + 30, x2, top[after] + (0 if after.startswith("add") else 6))
    for ns in range(0, int(profile.makespan_ns) + 1, 5000):
        p.text(left + scale * ns, 262, f"{ns // 1000} \u00b5s", "small")
    note = "Predicted by the timing model. Arrows: who waits for whom. Dashed: started, but no data moves yet."
    p.text(400, 288, note, "small")
    return p


PIECES = 3
PICTURES: dict[str, Callable[[Target], Picture]] = {
    "memories.svg": memories,
    "tiles.svg": tiles,
    "matmul.svg": matmul,
    "timeline.svg": timeline,
}


def draw() -> dict[str, str]:
    """The text of every picture, by the name of its file."""
    target = load_target(TARGET)
    return {name: make(target).svg() for name, make in PICTURES.items()}


def generations() -> str:
    """The table of all targets, as markdown."""
    targets = [load_target(name) for name in target_names()]
    rows: dict[str, Callable[[Target], str]] = {
        "name": lambda t: t.title,
        "partitions": lambda t: f"{t.partitions}",
        "SBUF, of each partition": lambda t: f"{t.sbuf.bytes_per_partition // KIB} KiB",
        "of that for tensors": lambda t: f"{t.sbuf.usable_bytes_per_partition:,} bytes",
        "PSUM, of each partition": lambda t: f"{t.psum.bytes_per_partition // KIB} KiB, {_banks(t)}",
        "columns of `moving`, float32": lambda t: f"{t.pe.max_moving_free_f32}",
        "clock of Tensor, Vector": lambda t: f"{t.engines.tensor.ghz} GHz, {t.engines.vector.ghz} GHz",
        "clock of Scalar, GpSimd": lambda t: f"{t.engines.scalar.ghz} GHz, {t.engines.gpsimd.ghz} GHz",
        "Tensor, bfloat16": lambda t: f"{t.peak.tensor_bf16_tflops:.0f} TFLOPS",
        "DMA of a core": lambda t: f"{t.dma.engines} engines, {t.dma.aggregate_gbps:.0f} GB/s",
        "HBM of a device": lambda t: f"{t.hbm.bytes // GIB} GiB, {t.hbm.bandwidth_gbps:,.0f} GB/s",
        "cores of a device": lambda t: f"{t.cores_per_device}",
        "times compared with measurements": lambda t: "yes" if t.validated else "no: none are published",
    }
    lines = [f"| | {' | '.join(t.name for t in targets)} |", "|---" * (len(targets) + 1) + "|"]
    lines += [f"| {what} | {' | '.join(value(t) for t in targets)} |" for what, value in rows.items()]
    return "\n".join(lines) + "\n\n`nki targets trn2` prints all numbers of a target, each with its source.\n"


def page() -> str:
    """The text of docs/concepts.md, with the table as the data have it."""
    before, heading, _ = PAGE.read_text().partition(HEADING)
    return before + heading + generations()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    PAGE.write_text(page())
    for name, text in draw().items():
        (FOLDER / name).write_text(text)
