"""How large the explorer's one-file reports and Perfetto traces are, and how fast a browser shows and moves a report.

The profiles are those of a real kernel, `benchmarks.timeline_speed.kernel`: an unrolled loop of tiles that are loaded,
multiplied, activated, added, scaled and stored, which is traced, compiled and timed for Trainium2 (200,000 instructions
take some minutes of that). ``--made`` takes the made-up profiles of ``tests/explorer/folders.py`` instead. With
``--profiles`` a folder that has them already is read, so that a later run measures at once.

Of each size, in a headless Chromium without a GPU, in a window of 1440 x 900 pixels:

* bytes of the HTML file;
* seconds from the start of the page's script to the first frame with the timeline, median of the loads;
* ms from frame to frame, in the last load, over 240 frames of zooming in and out with the wheel and 60 of panning, from
  the times that the browser gives its frames. The display has 60 of them per second, so 16.7 is as good as it gets;
* ms that the script needs to draw one of these frames;
* errors and warnings of the page, and whether it asked anybody for anything;
* bytes of the Perfetto trace, which the classes of the package perfetto read back: one slice for every instruction, one
  more for every transfer that a unit starts, and an end for each beginning.

Ends with 1 if a page complained or a trace is not complete. Run it on a quiet machine, from the root of the repository:
``python -m benchmarks.explorer_pages [--sizes N,...] [--made] [--loads N] [--profiles DIR] [--out DIR] [--json FILE]``.
``--out`` keeps the reports and traces, and pictures of every view in light and dark.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.timeline_speed import COLUMNS, INNER, PER_TILE, kernel
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
from tests.explorer.browser import Browser, end
from tests.explorer.folders import make

import nki
import nki.language as nl
from nki.explorer.report import report
from nki.explorer.shown import from_folders
from nki.profiling.record import Profile

WIDTH, HEIGHT = 1440, 900
MOVE = """(async () => {
  const { shared, timelines: [line] } = explorer, frames = [], drawn = [];
  const next = () => new Promise(requestAnimationFrame);
  const box = line.over.getBoundingClientRect();
  const wheel = (more) => line.over.dispatchEvent(new WheelEvent("wheel", { bubbles: true, cancelable: true,
    clientX: box.left + box.width * 0.6, clientY: box.top + 40, ...more }));
  const run = async (count, step) => {
    await next();
    line.frames.length = 0;
    let before = await next();
    for (let at = 0; at < count; at++) {
      step(at);
      const now = await next();
      frames.push(now - before);
      before = now;
    }
    await next();
    drawn.push(...line.frames);
  };
  shared.setView(0, shared.longest);
  await run(240, (at) => wheel({ deltaY: at < 120 ? -30 : 30 }));
  shared.setView(0.3 * shared.longest, 0.35 * shared.longest);
  await run(60, (at) => wheel({ deltaY: at < 30 ? 40 : -40, shiftKey: true }));
  shared.setView(0, shared.longest);
  return { frames, drawn };
})()"""
"""Moves the timeline as a wheel does, one step for each frame: 120 steps in are a factor of 8100."""

TABLE: tuple[tuple[str, int, Callable[[dict[str, Any]], str]], ...] = (
    ("instructions", 12, lambda row: f"{row['instructions']:,}"),
    ("transfers", 10, lambda row: f"{row['transfers']:,}"),
    ("report MB", 10, lambda row: f"{row['report_bytes'] / 1e6:.2f}"),
    ("load s", 7, lambda row: f"{row['load_s']:.2f}"),
    ("frame ms", 12, lambda row: "{:.1f} {:.1f}".format(*row["frame_ms"])),
    ("drawing ms", 12, lambda row: "{:.1f} {:.1f}".format(*row["drawing_ms"])),
    ("messages", 9, lambda row: str(len(row["messages"]))),
    ("trace MB", 9, lambda row: f"{row['trace_bytes'] / 1e6:.1f}"),
    ("slices", 10, lambda row: f"{row['trace_slices']:,}"),
    ("complete", 9, lambda row: "yes" if row["trace_complete"] else "NO"),
)


def main() -> None:
    """Measure, print, and say whether everything is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,20000,200000", help="instructions, roughly: whole tiles")
    parser.add_argument("--made", action="store_true", help="profiles that are made up, which takes seconds")
    parser.add_argument("--loads", type=int, default=3, help="how often each report is opened")
    parser.add_argument("--profiles", type=Path, help="folder for the profiles; those that are there are used")
    parser.add_argument("--out", type=Path, help="folder for reports, traces and pictures")
    parser.add_argument("--json", type=Path, help="file for all numbers")
    asked = parser.parse_args()
    os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = "trn2"
    print(" ".join(f"{head:>{wide}}" for head, wide, _ in TABLE), "  pairs: median, 95 %", flush=True)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for size in map(int, asked.sizes.split(",")):
            folder = profiled(size, asked.made, asked.profiles or Path(scratch))
            rows.append(measured(folder, asked.out or Path(scratch), asked.loads, asked.out is not None))
            print(" ".join(f"{show(rows[-1]):>{wide}}" for _, wide, show in TABLE), flush=True)
    end()
    if asked.json:
        asked.json.write_text(json.dumps({"made": asked.made, "rows": rows}, indent=2) + "\n", encoding="utf-8")
    sys.exit(any(row["messages"] or row["requests"] or not row["trace_complete"] for row in rows))


def profiled(size: int, made: bool, parent: Path) -> Path:
    """The folder with a profile of about `size` instructions; written unless it is there."""
    folder = parent / f"{'made' if made else 'tiles'}-{size}"
    if (folder / "profile.json").exists():
        return folder
    if made:
        return make(folder, size, queues=16)
    tiles = max(1, size // PER_TILE)
    arrays = np.zeros((INNER, INNER), nl.bfloat16), np.zeros((INNER, tiles * COLUMNS), nl.bfloat16)
    nki.profile(kernel)(*arrays, tiles).save(folder)
    return folder


def measured(folder: Path, out: Path, loads: int, pictures: bool) -> dict[str, Any]:
    """All numbers of a profile; `out` gets the report and the trace, and the pictures if they are wanted."""
    out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    shown = from_folders([folder])
    file = out / f"{folder.name}.html"
    file.write_text(report(shown), encoding="utf-8")
    profile = shown[0].profile
    row: dict[str, Any] = {
        "profile": folder.name, "instructions": len(profile["instructions"]), "transfers": len(profile["dma"]),
        "report_bytes": file.stat().st_size, "read_and_report_s": time.perf_counter() - began,
    }  # fmt: skip
    row |= moved(file, loads)
    if pictures:
        for dark in (False, True):
            photographed(file, out, dark)
    return row | traced(profile, out / f"{folder.name}.pftrace")


def moved(file: Path, loads: int) -> dict[str, Any]:
    """What a browser needs for a report: seconds of loading, ms of frames and of drawing; what it complained about."""
    found = [opened(file) for _ in range(max(1, loads))]
    return {
        **found[-1], "load_s": statistics.median(each["load_s"] for each in found),
        "loads_s": [each["load_s"] for each in found],
        "messages": [text for each in found for text in each["messages"]],
        "requests": [url for each in found for url in each["requests"]],
    }  # fmt: skip


def opened(file: Path) -> dict[str, Any]:
    """The same of one page in a fresh context, with nothing in its caches."""
    with Browser(WIDTH, HEIGHT) as page:
        page.open_file(file.resolve())
        seconds = page.run("explorer.loadTime") / 1000
        times = page.run(MOVE)
        return {
            "load_s": seconds, "frame_ms": middle_and_most(times["frames"]),
            "drawing_ms": middle_and_most(times["drawn"]), "frames": len(times["frames"]), "messages": page.messages,
            "requests": [url for url in page.requests if url != file.resolve().as_uri()],
            "browser": page.run("navigator.userAgent"),
        }  # fmt: skip


def middle_and_most(values: Sequence[float]) -> list[float]:
    """The median, and what 95 % of the values do not exceed."""
    return [statistics.median(values), float(np.percentile(values, 95, method="higher"))]


def photographed(file: Path, out: Path, dark: bool) -> None:
    """Pictures of the timeline from afar, from near with an event selected, and of the tabs with most of the window."""

    def picture(name: str) -> None:
        page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        page.screenshot(out / f"{file.stem}-{'dark' if dark else 'light'}-{name}.png")

    with Browser(WIDTH, HEIGHT, dark=dark) as page:
        page.open_file(file.resolve())
        picture("timeline")
        page.run("explorer.shared.select(explorer.models[0], explorer.models[0].lanes[0].rows.at(40) ?? 0)")
        page.run("explorer.timelines[0].over.focus()")
        page.key("f")
        picture("near")
        page.key("Escape")
        page.key("0")
        page.run("document.activeElement.blur()")
        page.run("explorer.node.style.setProperty('--split', '30%')")
        for key in page.run("explorer.tabs.views.map(([key]) => key)"):
            page.run(f"explorer.tabs.open('{key}')")
            picture(key)


def traced(profile: Profile, file: Path) -> dict[str, Any]:
    """Bytes and slices of the Perfetto trace, and whether every instruction and transfer of the profile is there."""
    began = time.perf_counter()
    profile.perfetto(file)
    taken = time.perf_counter() - began
    trace = Trace()
    trace.ParseFromString(file.read_bytes())
    ids, starts, ends = slices(trace)
    instructions = {row["id"] for row in profile["instructions"].rows() if row["runs"]}
    triggered = {row["instruction"] for row in profile["dma"].rows() if row["trigger"]}
    complete = ids == Counter(instructions) and starts == Counter(triggered & instructions) and not +ends and not -ends
    return {
        "trace_bytes": file.stat().st_size, "trace_s": taken, "trace_slices": ids.total() + starts.total(),
        "trace_complete": complete,
    }  # fmt: skip


def slices(trace: Any) -> tuple[Counter[int], Counter[int], Counter[int]]:
    """How often each instruction is a slice, how often its start is one, and slices of each track that do not end.

    The loading of a matmul's weights, waits and the critical path have tracks of their own and are not counted.
    """
    names = {p.track_descriptor.uuid: p.track_descriptor.name for p in trace.packet if p.HasField("track_descriptor")}
    ids: Counter[int] = Counter()
    starts: Counter[int] = Counter()
    opened: Counter[int] = Counter()
    for packet in trace.packet:
        event = packet.track_event
        if event.type == TrackEvent.TYPE_SLICE_END:
            opened[event.track_uuid] -= 1
        elif event.type == TrackEvent.TYPE_SLICE_BEGIN:
            opened[event.track_uuid] += 1
            number = next((note.int_value for note in event.debug_annotations if note.name == "id"), None)
            if number is not None and names[event.track_uuid] != "tensor weights":
                (starts if event.name.startswith("start ") else ids)[number] += 1
    return ids, starts, opened


if __name__ == "__main__":
    main()
