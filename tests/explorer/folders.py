"""Profile folders that are made up: a tiled kernel with loads, matmuls, element-wise work and stores, of any length.

Written from the description of the folder in docs/profile.md, without the writer of the package.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nki.profiling.schema import FORMAT, TABLES, VERSION

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")
KINDS = {"int": pa.int64(), "float": pa.float64(), "text": pa.string(), "bool": pa.bool_()}
TILE = 128 * 512 * 4

HARDWARE = {
    "title": "Trainium2", "partitions": 128, "quadrant": 32, "sbuf_bytes_per_partition": 196608,
    "psum_bytes_per_partition": 16384, "psum_banks": 8, "psum_bank_bytes": 2048, "hbm_bytes_per_ns": 725.0,
    "dma_engines": 16, "dma_bytes_per_ns": 360.0, "pe_rows": 128, "pe_columns": 128, "base_ghz": 1.4,
    "ghz": {"tensor": 2.4, "vector": 0.96, "scalar": 1.4, "gpsimd": 1.4, "sync": 1.4},
    "lanes": {"vector": 128, "scalar": 128, "gpsimd": 128},
    "peak_tflops": {"bfloat16": 83.4, "float32": 20.9, "float8": 162.4},
}  # fmt: skip

ACCURACY = {
    "percent": 9.0, "share": 0.9, "points": 28, "kind": "kernels on trn2 that transfers bound",
    "text": "within 9 % in nine of ten measured kernels on trn2 that transfers bound (28 published times)",
}  # fmt: skip

# opcode, engine, cost in ns, flops, source line
STEPS = (
    ("nisa.dma_copy", "dma", 1450.0, 0.0, 3),
    ("nisa.dma_copy", "dma", 1450.0, 0.0, 4),
    ("nisa.nc_matmul", "tensor", 213.3, 2.0 * 128 * 128 * 512, 6),
    ("nisa.nc_matmul", "tensor", 213.3, 2.0 * 128 * 128 * 512, 6),
    ("nisa.tensor_tensor", "vector", 533.7, 128.0 * 512, 7),
    ("nisa.activation", "scalar", 401.9, 128.0 * 512, 8),
    ("nisa.iota", "gpsimd", 120.0, 0.0, 9),
    ("nisa.dma_copy", "dma", 1511.0, 0.0, 10),
)
LINES = (
    (1, "kernel", -1, "def kernel(a, b):"),
    (21, "tile", 0, "for i in range(tiles):"),
    (22, "tile", 1, "load_tiles(a, b, i)"),
    (31, "load", 2, "nisa.dma_copy(dst=lhs, src=a[i])"),
    (32, "load", 2, "nisa.dma_copy(dst=rhs, src=b[i])"),
    (23, "tile", 1, "for k in range(2):"),
    (24, "tile", 5, "nisa.nc_matmul(dst=acc, stationary=lhs[k], moving=rhs)"),
    (25, "tile", 1, "nisa.tensor_tensor(dst=sums, data1=acc, data2=bias, op=nl.add)"),
    (26, "tile", 1, "nisa.activation(dst=out, op=nl.exp, data=sums)"),
    (27, "tile", 1, "nisa.iota(dst=index, pattern=[[1, 512]])"),
    (28, "tile", 1, "nisa.dma_copy(dst=c[i], src=out)"),
)


class Maker:
    """One program in the order of its instructions; a queue does one thing after the other."""

    def __init__(self, name: str, queues: int, slower: float) -> None:
        self.name, self.queues, self.slower = name, queues, slower
        self.rows: dict[str, list[list[Any]]] = {table: [] for table in TABLES}
        self.free: dict[str, float] = {}
        self.last: dict[str, int] = {}
        self.end: list[float] = []
        self.next_queue = 0

    def instruction(self, core: int, position: int, step: int, tile: int, needs: list[tuple[int, str]]) -> int:
        """Add one; `needs` are producers with the kind of dependence."""
        opcode, engine, cost, flops, line = STEPS[step]
        cost *= self.slower if engine == "vector" else 1.0
        cost += (tile * 37 % 11) * 3.25
        queue = engine
        if engine == "dma":
            queue = f"dma{self.next_queue % self.queues}"
            self.next_queue += 1
        key = f"{core}/{queue}"
        turn = self.free.get(key, 0.0)
        number = len(self.rows["instructions"])
        ready, blocker, kind = turn, -1, ""
        for producer, _ in needs:
            seen = self.end[producer] + 64.0
            if seen > ready:
                ready, blocker, kind = seen, producer, "signal"
        start = ready
        move = start + 200.0 if engine == "dma" else start
        end = move + cost
        self.free[key] = end
        self.end.append(end)
        texts = f"dst=t{step}_{tile % 8}:float32[128, 512]@{'hbm' if step == 7 else 'sbuf'} data=x{step}"
        load, store = step in (0, 1), step == 7
        on_chip = 0 if engine == "dma" else TILE
        self.rows["instructions"].append([
            number, core, position, opcode, "evict" if step == 4 else "", engine, queue, texts, turn, start, move,
            end, end + 64.0, start - turn, kind, blocker, f"sbuf t{step}_{tile % 8}" if kind else "", 0.0, 0.0, cost,
            1.0, -1, 0.0, TILE if load else 0, TILE if store else 0, TILE if store else on_chip,
            TILE if load else on_chip, on_chip if step == 4 else 0, on_chip if step in (2, 3) else 0, flops, 0.0, line,
            -1,
        ])  # fmt: skip
        for producer, which in needs:
            gap = start - self.end[producer] - 64.0
            what = f"sbuf t{step}_{tile % 8} partitions 0:128 bytes 0:2048"
            binding = producer == blocker
            self.rows["edges"].append([core, producer, number, which, what, gap, binding, which == "flow"])
        if engine == "dma":
            self.rows["dma"].append([
                core, number, queue, "sync", start, start + 150.0, move, end, TILE, 128, TILE / (end - move),
                "sbuf" if store else "hbm", "hbm" if store else "sbuf", ("a", "b")[step] if load else "c",
            ])  # fmt: skip
        self.last[f"{core}/{step}"] = number
        return number

    def program(self, core: int, count: int) -> None:
        """`count` instructions of a core."""
        made: dict[tuple[int, int], int] = {}
        for position in range(count):
            tile, step = divmod(position, len(STEPS))
            before = {2: (0, 1), 3: (0, 1), 4: (2, 3), 5: (4,), 7: (5,)}.get(step, ())
            needs = [(made[tile, other], "flow") for other in before]
            reuse = {0: 3, 1: 3, 2: 4, 4: 5, 5: 7}.get(step)
            if reuse is not None and (tile - 2, reuse) in made:
                needs.append((made[tile - 2, reuse], "anti"))
            made[tile, step] = self.instruction(core, position, step, tile, needs)

    def finish(self, core: int) -> float:
        """Counters, memory, path and time of a core; its makespan."""
        mine = [row for row in self.rows["instructions"] if row[1] == core]
        makespan = max(row[12] for row in mine)
        self._path(core, mine, makespan)
        self._memory(core, mine, makespan)
        self._time(core, mine, makespan)
        self._counters(core, mine)
        return makespan

    def _path(self, core: int, mine: list[list[Any]], makespan: float) -> None:
        rows = self.rows["instructions"]
        at = max(mine, key=lambda row: row[12])[0]
        time, pieces = makespan, []
        before: dict[str, int] = {}
        previous = {}
        for row in mine:
            previous[row[0]] = before.get(row[6], -1)
            before[row[6]] = row[0]
        while at >= 0 and time > 0:
            row = rows[at]
            for kind, start in (("latency", row[11]), ("run", row[10]), ("trigger", row[9])):
                if start < time:
                    pieces.append([core, start, time, kind, at])
                    row[22] += time - start
                    time = start
            at = row[15] if row[15] >= 0 else previous[at]
        if time > 0:
            pieces.append([core, 0.0, time, "idle", -1])
        self.rows["path"] += reversed(pieces)

    def _memory(self, core: int, mine: list[list[Any]], makespan: float) -> None:
        for name in ("a", "b", "c"):
            self.rows["memory"].append(
                [core, name, "shared_hbm", "[4096, 4096]", "float32", -1, 1, -1, 4096 * 4096 * 4, 0.0, makespan, 0]
            )
        for row in mine:
            step = row[2] % len(STEPS)
            if step == 6 or step == 7 or len(self.rows["memory"]) > 20_000:
                continue
            tile = row[2] // len(STEPS)
            region, size = ("psum", 2048) if step in (2, 3) else ("sbuf", 2048 * (1 + step))
            address = (step * 4 + tile % 2) * 2048 if region == "psum" else step * 30_000 + (tile % 2) * size
            address = address % 16384 if region == "psum" else address
            end = min(makespan, row[12] + 2500.0)
            self.rows["memory"].append(
                [core, f"t{step}_{tile}", region, "[128, 512]", "float32", 0, 128, address, size, row[9], end, row[31]]
            )

    def _time(self, core: int, mine: list[list[Any]], makespan: float) -> None:
        tracks = [*ENGINES, "dma", *sorted({row[6] for row in mine if row[5] == "dma"})]
        for track in tracks:
            rows = [row for row in mine if track in (row[5], row[6])]
            busy = min(makespan, sum(row[11] - row[10] for row in rows) / (self.queues if track == "dma" else 1))
            wait = min(makespan - busy, sum(row[13] for row in rows))
            values = {"busy": busy, "signal": wait, "idle": makespan - busy - wait}
            self.rows["time"] += [[core, track, name, ns] for name, ns in values.items() if ns or name == "idle"]

    def _counters(self, core: int, mine: list[list[Any]]) -> None:
        lives = [row for row in self.rows["memory"] if row[0] == core and row[2] in ("sbuf", "psum")]
        for region in ("sbuf", "psum"):
            changes = [c for r in lives if r[2] == region for c in ((r[9], r[8]), (r[10], -r[8]))]
            self._series(core, f"{region}_bytes", changes)
        moves = [(row[10], row[11], TILE / (row[11] - row[10])) for row in mine if row[5] == "dma"]
        self._series(core, "dma_bytes_per_ns", [c for a, b, v in moves for c in ((a, v), (b, -v))])

    def _series(self, core: int, name: str, changes: list[tuple[float, float]]) -> None:
        value, rows = 0.0, self.rows["counters"]
        for time, change in sorted(changes):
            value = max(0.0, value + change)
            if rows and rows[-1][:3] == [core, name, time]:
                rows[-1][3] = value
            else:
                rows.append([core, name, time, value])

    def document(self, makespans: list[float]) -> dict[str, Any]:
        """What profile.json has."""
        rows = self.rows["instructions"]
        totals = []
        for core, makespan in enumerate(makespans):
            mine = [row for row in rows if row[1] == core]
            units = {track: ns for c, track, kind, ns in self.rows["time"] if c == core and kind == "busy"}
            units = {name: units.get(name, 0.0) for name in (*ENGINES, "dma")}
            reads, writes = sum(row[23] for row in mine), sum(row[24] for row in mine)
            peaks = {n: max(r[3] for r in self.rows["counters"] if r[1] == f"{n}_bytes") for n in ("sbuf", "psum")}
            totals.append({
                "makespan_ns": makespan, "instructions": len(mine), "units": units,
                "bound_by": max(units, key=lambda name: units[name]),
                "bounds": {name: round(ns, 3) for name, ns in units.items()},
                "flops": sum(row[29] for row in mine), "transpose_flops": 0.0, "hbm_read_bytes": reads,
                "hbm_write_bytes": writes, "dma_bytes": reads + writes,
                "transfers": sum(row[5] == "dma" for row in mine), "sbuf_peak_bytes": int(peaks["sbuf"]),
                "psum_peak_bytes": int(peaks["psum"]), "hbm_peak_bytes": 3 * 4096 * 4096 * 4, "assumed_loops": [],
                "matmul_flops": sum(row[29] for row in mine if row[3] == "nisa.nc_matmul"),
            })  # fmt: skip
        advice = [{
            "rule": "dma.wait", "engine": "tensor", "message": "Tensor waits for loads 61 % of the time",
            "fix": "load the next tile while this one is worked on: two buffers for lhs and rhs",
            "saving_ns": max(makespans) * 0.31, "share": 0.31,
            "expected_ns": max(makespans) * 0.25, "within_error": False,
            "instructions": [row[0] for row in rows[2:2000:8]], "sources": [6],
        }, {
            "rule": "vector.evict", "engine": "vector", "message": "VectorE moves PSUM to SBUF",
            "fix": "let ScalarE do it together with the activation", "saving_ns": max(makespans) * 0.07,
            "share": 0.07, "expected_ns": max(makespans) * 0.04, "within_error": True,
            "instructions": [row[0] for row in rows[4:2000:8]], "sources": [7],
        }]  # fmt: skip
        return {
            "format": FORMAT, "version": VERSION, "is_simulation": True, "kernel": self.name, "target": "trn2",
            "generator": "test", "validated": True, "cores": len(makespans), "makespan_ns": max(makespans),
            "launch_ns": 15000.0, "totals": totals, "hardware": HARDWARE, "advice": advice, "accuracy": ACCURACY,
            "imitate": "vendor", "kept_loads": [],
        }  # fmt: skip


def make(
    folder: Path, count: int, *, name: str = "tiled_kernel", cores: int = 1, queues: int = 4, slower: float = 1.0,
    file: str = "/src/kernels.py",
) -> Path:  # fmt: skip
    """A folder with `count` instructions on every core."""
    maker = Maker(name, queues, slower)
    maker.rows["sources"] = [
        [number, file, function, line, 4, 40, parent, text]
        for number, (line, function, parent, text) in enumerate(LINES)
    ]
    for core in range(cores):
        maker.program(core, count)
    makespans = [maker.finish(core) for core in range(cores)]
    write(folder, maker.document(makespans), maker.rows)
    return folder


def write(folder: Path, document: dict[str, Any], rows: dict[str, list[list[Any]]]) -> None:
    """The files of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "profile.json").write_text(json.dumps(document), encoding="utf-8")
    for table, columns in TABLES.items():
        values = list(zip(*rows[table], strict=True)) if rows[table] else [()] * len(columns)
        schema = pa.schema([pa.field(column.name, KINDS[column.kind], nullable=False) for column in columns])
        arrays = [pa.array(list(v), KINDS[c.kind]) for c, v in zip(columns, values, strict=True)]
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), folder / f"{table}.parquet")
