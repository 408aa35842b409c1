"""What a candidate may try instead of being right and fast, and what catches it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nki.core.errors import UsageError
from nki.tools.grade.grade import Grade
from nki.tools.grade.process.confine import Limits
from tests.tools.grade import kernels
from tests.tools.grade.grading import codes, graded

STORE = "        nisa.dma_copy(dst=out[piece, 0:columns], src=left)\n"
TRACED = "    rows, columns = a.shape\n"


def before(code: str) -> str:
    """The honest kernel after other code of its file."""
    return kernels.HEAD + code + kernels.ADD.removeprefix(kernels.HEAD)


def within(code: str) -> str:
    """The honest kernel with other code in it, which runs while it is traced."""
    assert TRACED in kernels.ADD
    return kernels.ADD.replace(TRACED, TRACED + "".join(f"    {line}\n" for line in code.strip().splitlines()))


# --- values


CONSTANT = (
    kernels.HEAD
    + """
import numpy as np

@nki.jit
def add(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0.25)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
)
PARTLY = kernels.ADD.replace("rows, columns = a.shape", "rows, columns = a.shape[0] - 1, a.shape[1]")
CLIPPED = kernels.ADD.replace(
    STORE, "        nisa.tensor_scalar(dst=left, data=left, op0=nl.minimum, operand0=100.0)\n" + STORE
)
WRITES = kernels.ADD.replace(STORE, STORE + "        nisa.dma_copy(dst=a[piece, 0:columns], src=right)\n")
ONE_SHAPE = kernels.ADD.replace("range(0, rows, 128)", "range(0, 64, 128)").replace("rows - start", "64 - start")


def test_a_constant_result(tmp_path: Path) -> None:
    assert codes(graded(tmp_path, CONSTANT)) == ["grade.constant"]


def test_a_partly_written_result(tmp_path: Path) -> None:
    found = codes(graded(tmp_path, PARTLY))
    assert "grade.unwritten" in found
    assert "grade.values" in found


def test_right_only_for_ordinary_numbers(tmp_path: Path) -> None:
    made = graded(tmp_path, CLIPPED)
    assert codes(made) == ["grade.range"]
    assert "large, mixed" in made.findings[-1].message


def test_a_softmax_without_its_maximum(tmp_path: Path) -> None:
    made = graded(tmp_path, kernels.NAIVE_SOFTMAX, ("x=64x40:float32",), name="softmax")
    assert codes(made) == ["grade.range"]


def test_an_argument_that_is_written_to(tmp_path: Path) -> None:
    made = graded(tmp_path, WRITES)
    assert codes(made) == ["grade.writes-argument"]
    place = next(f for f in made.findings if f.code == "grade.writes-argument").location.frame
    assert place is not None
    assert "dst=a[piece" in Path(place.file).read_text().splitlines()[place.line - 1]


@pytest.mark.parametrize("sizes", [{"derive": True}, {"also": ("a=96x32:float32 b=96x32:float32",)}])
def test_right_for_one_shape_alone(tmp_path: Path, sizes: dict[str, object]) -> None:
    made = graded(tmp_path, ONE_SHAPE, **sizes)  # type: ignore[arg-type]
    assert {"grade.shape"} == set(codes(made)) - {"return.partly-written"}


# --- time


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Grade:
    return graded(tmp_path_factory.mktemp("honest"), kernels.ADD)


SLEEPS = within("import time\ntry:\n    time.sleep(0.2)\nexcept PermissionError:\n    pass")
SLOWER = """
import pathlib, time
for place in (PLACE, "../../baseline.py"):
    try:
        pathlib.Path(place).write_text("import time\\ntime.sleep(60)\\n")
    except OSError:
        pass
"""


def test_sleeping_changes_no_time_and_is_told(tmp_path: Path, honest: Grade) -> None:
    made = graded(tmp_path, SLEEPS)
    assert codes(made) == ["grade.sleep"]
    assert made.times == honest.times
    assert made.score == 0.0


def test_a_baseline_that_sleeps_is_no_baseline(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"grade\.sleep") as caught:
        graded(tmp_path, kernels.ADD, baseline=SLEEPS)
    assert caught.value.code == "grade.baseline"


def test_a_baseline_cannot_be_slowed_down(tmp_path: Path, honest: Grade) -> None:
    source = before(SLOWER.replace("PLACE", repr(str(tmp_path / "baseline.py"))))
    made = graded(tmp_path, source, baseline=kernels.ADD)
    assert set(codes(made)) == {"grade.writes"}
    assert (tmp_path / "baseline.py").read_text() == kernels.ADD
    assert made.times is not None
    assert honest.times is not None
    assert made.times.baseline_ns == honest.times.predicted_ns


TIMING = """
import time
import nki.timing.timeline
import nki.target.load
time.perf_counter = time.time = lambda: 0.0
nki.timing.timeline.timeline = None
chip = nki.target.load.load_target("trn2")
object.__setattr__(chip, "timing", {"launch_ns": 0.0})
"""
HIDDEN = """
import sys
import nki.tools.grade.process.originals as originals
originals.Originals.replaced = lambda self: []
import nki.timing.timeline, nki.spec.verify, nki.tools.grade.score
nki.timing.timeline.timeline = nki.spec.verify.verify = lambda *_: []
nki.tools.grade.score.score_of = lambda *_: 100.0
"""


def test_a_patched_timer_is_told_and_does_not_matter(tmp_path: Path, honest: Grade) -> None:
    made = graded(tmp_path, before(TIMING))
    assert codes(made) == ["grade.replaced"]
    assert "time.perf_counter" in str(made.findings[-1].facts["names"])
    hidden = graded(tmp_path, before(HIDDEN))
    assert hidden.times == honest.times
    assert hidden.score == honest.score < 100.0


# --- the reference


READS = """
import glob, os, sys
for place in (FILES, "/proc/%d/environ" % os.getppid(), "/proc/%d/mem" % os.getppid()):
    try:
        SEEN = open(place, "rb").read(1)
    except OSError:
        continue
    os.rename = None  # something was read: a code that this test does not expect
"""
LOOKS = """
import sys
frame, seen = sys._getframe(), []
while frame is not None:
    seen += [repr(value) for value in [*frame.f_locals.values(), *frame.f_globals.values()]]
    frame = frame.f_back
seen += [repr(vars(module)) for module in list(sys.modules.values()) if hasattr(module, "__dict__")]
import os
if any("the reference was " + "here" in text for text in [*seen, repr(os.environ), repr(sys.argv)]):
    os.rename = None
import references
"""


def test_the_reference_cannot_be_read(tmp_path: Path) -> None:
    found = codes(graded(tmp_path, before(READS.replace("FILES", repr(str(tmp_path / "references.py"))))))
    assert set(found) == {"grade.reads"}
    assert len(found) == 3


def test_the_reference_is_nowhere_in_the_process(tmp_path: Path) -> None:
    assert codes(graded(tmp_path, before(LOOKS))) == ["kernel.import"]


def test_objects_of_the_process_are_not_searched(tmp_path: Path) -> None:
    assert codes(graded(tmp_path, within("import gc\ngc.get_objects()"))) == ["grade.memory-search", "kernel.exception"]


# --- the process


ESCAPES = """
import os, socket, subprocess
for attempt in (
    os.fork,
    lambda: subprocess.run(["true"]),
    lambda: socket.create_connection(("127.0.0.1", 9)),
    lambda: open("/tmp/left-behind", "w"),
    lambda: os.kill(os.getppid(), 9),
    lambda: os.chmod("..", 0o777),
    lambda: os.listdir("/"),
):
    try:
        attempt()
    except OSError:
        continue
    os.rename = None  # it worked: a code that this test does not expect
"""


def test_a_process_that_reaches_further(tmp_path: Path) -> None:
    """Each attempt is refused and told once; what the kernel does afterwards does not count."""
    made = graded(tmp_path, before(ESCAPES))
    expected = ["process", "process", "network", "writes", "process", "writes", "reads"]
    assert codes(made) == [f"grade.{name}" for name in expected]
    assert made.score == 0.0


BELOW_PYTHON = """
import ctypes
libc = ctypes.CDLL(None)
opened, connected = libc.open(FILE, 0) >= 0, libc.socket(2, 1, 0) >= 0
signalled = libc.kill(libc.getppid(), 0) == 0
raise ValueError(f"{opened} {connected} {signalled}")
"""


def test_the_operating_system_refuses_what_python_does_not_see(tmp_path: Path) -> None:
    """As far as the grade says that it does."""
    made = graded(tmp_path, before(BELOW_PYTHON.replace("FILE", repr(bytes(tmp_path / "references.py")))))
    isolation = made.heard[0].isolation
    assert isolation is not None
    able = (not isolation.landlock, not isolation.system_calls, not isolation.system_calls)
    assert " ".join(map(str, able)) in made.findings[-1].message


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import os\nos._exit(0)", "grade.ended"),
        ("x = bytearray(1 << 40)", "grade.memory"),
        ("raise SystemExit", "kernel.exception"),
        ("import os\nos.write(int(__import__('sys').argv[1]), b'score 100\\n')", "grade.answer"),
    ],
)
def test_a_process_without_an_answer(tmp_path: Path, code: str, expected: str) -> None:
    made = graded(tmp_path, within(code))
    assert codes(made) == [expected]
    assert made.score == 0.0


@pytest.mark.parametrize(
    ("code", "limits", "expected"),
    [
        ("while True: pass", Limits(seconds=1.0), "grade.time"),
        (
            "for n in range(4): open(f'f{n}', 'wb').write(bytes(600_000))\nwhile True: pass",
            Limits(file=1 << 20),
            "grade.size",
        ),
        ("[open(f'f{n}', 'w').close() for n in range(10**9)]", Limits(files=200), "grade.size"),
    ],
)
def test_a_process_without_end(tmp_path: Path, code: str, limits: Limits, expected: str) -> None:
    assert expected in codes(graded(tmp_path, within(code), limits=limits))


# --- the program


FORGED = """
import nki.store.traced as traced
_pack = traced.pack_traced
def pack(programs):
    data = bytearray(_pack(programs))
    at = data.index(b"tensor_tensor")
    data[at : at + 13] = b"tensor_tenzor"
    return bytes(data)
import nki.tools.grade.process.tracing as tracing
tracing.pack_traced = pack
"""
OTHER_SHAPE = """
import nki.tools.grade.process.tracing as tracing
_arguments = tracing.parse_arguments
tracing.parse_arguments = lambda texts: _arguments([t.replace("64x32", "64x1") for t in texts])
"""


def test_a_damaged_program(tmp_path: Path) -> None:
    assert {"asm.value", "grade.replaced"} == set(codes(graded(tmp_path, before(FORGED))))


def test_a_program_for_smaller_arguments(tmp_path: Path) -> None:
    assert {"grade.arguments", "grade.replaced"} == set(codes(graded(tmp_path, before(OTHER_SHAPE))))


def test_a_program_that_depends_on_chance(tmp_path: Path) -> None:
    by_chance = "        nisa.tensor_scalar(dst=left, data=left, op0=nl.multiply, operand0=1.0 + value * 1e-6)\n"
    source = within("import random\nvalue = random.random()").replace(STORE, by_chance + STORE)
    assert codes(graded(tmp_path, source, traces=2)) == ["grade.nondeterministic"]


COUNTED = kernels.ADD.replace(
    "        nisa.tensor_tensor(dst=left, data1=left, data2=right, op=nl.add)\n",
    "        turns = nisa.register_alloc(50)\n"
    "        total = nl.ndarray(left.shape, dtype=a.dtype, buffer=nl.sbuf)\n"
    "        for turn in nl.dynamic_range(0, turns):\n"
    "            nisa.tensor_tensor(dst=total, data1=left, data2=right, op=nl.add)\n",
).replace("src=left)\n    return", "src=total)\n    return")


def test_loops_whose_trips_only_a_run_knows_take_their_time(tmp_path: Path, honest: Grade) -> None:
    made = graded(tmp_path, COUNTED)
    assert codes(made) == []
    assert made.times is not None
    assert honest.times is not None
    assert made.times.predicted_ns > 2.0 * honest.times.predicted_ns
