"""What a manifest refuses, what it covers, and what it costs."""

from __future__ import annotations

import copy
import importlib
import os
import string
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest
import scipy.special
from ml_dtypes import bfloat16

import nki
import nki.isa as nisa
import nki.language as nl
from nki.driver.call import call
from nki.driver.launch import Launch, trace_only
from nki.frontend.dependencies.code_objects import encoded, facts_of
from nki.frontend.dependencies.identity_checks import Probes
from nki.frontend.dependencies.manifest import manifest_of
from nki.graph.emit import EMITTERS
from nki.graph.ir import Group, Op, TensorType, Value
from nki.options import Options
from nki.target.load import load_target
from tests.frontend.dependencies.remembering import Remembering, executed, load

ROOT = Path(__file__).resolve().parents[3]
KERNEL = "\n\n@nki.jit\ndef kernel():\n    return fill({})\n"

REFUSED = {
    "environment": ("import os", "len(os.environ['PATH']) * 0 + 1", "os.environ"),
    "environment by function": ("import os", "float(os.getenv('NOT_THERE', '1'))", "os.getenv"),
    "environment by name": ("from os import environ", "len(environ) * 0", "os._Environ"),
    "environment in a helper": ("import os\ndef f():\n    return len(os.environ) * 0", "f()", "f reads os.environ"),
    "clock": ("import time", "time.time() * 0", "time.time"),
    "clock by name": ("from time import perf_counter", "perf_counter() * 0", "time.perf_counter"),
    "clock under another name": ("import time as t\ndef f(m):\n    return m.time() * 0", "f(t)", "module time"),
    "date": ("import datetime", "datetime.date.today().year * 0", "datetime.date"),
    "date by class": ("from datetime import date", "date.today().year * 0", "datetime.date"),
    "random number": ("import random", "random.random() * 0", "random.random"),
    "random number by name": ("from random import random", "random() * 0", "random.Random"),
    "random number of NumPy": ("import numpy as np", "np.random.rand() * 0", "np.random"),
    "random number, imported inside": ("def f():\n    import random\n    return random.random() * 0", "f()", "random"),
    "file": ("def f():\n    with open(__file__) as file:\n        return len(file.read()) * 0", "f()", "f calls open"),
    "file by path": ("import pathlib", "len(pathlib.Path(__file__).read_text()) * 0", "pathlib.Path"),
    "file by a path of the module": (
        "import pathlib\nP = pathlib.Path(__file__)", "len(P.read_text()) * 0", "the kernel calls .read_text()"
    ),
    "file there or not, by a path in an object": (
        "import pathlib\nclass C: pass\nc = C()\nc.at = [pathlib.Path('x')]", "c.at[0].exists()", ".exists()"
    ),
    "file by a computed method of a path": (
        "import pathlib\nP = pathlib.Path(__file__)\ndef f():\n    return len(getattr(P, 'read_' + 'text')()) * 0",
        "f()", "computes names",
    ),
    "file by a path of the user's class": (
        "import pathlib\nclass Path(type(pathlib.Path())):\n    pass\nP = Path(__file__)", "P.stat().st_size * 0",
        "cannot be compared by value",
    ),
    "date of NumPy": ("import numpy as np", "float(np.datetime64('now').astype(int)) * 0", "np.datetime64"),
    "file by a class of NumPy": ("import numpy as np", "float(np.memmap(__file__, mode='r')[0]) * 0", "np.memmap"),
    "cached function of a global": (
        "import functools\nN = 1\n@functools.lru_cache\ndef f():\n    return N", "f()", "answers, and reads N,"
    ),
    "cached function of a class": (
        "import functools\nclass C:\n    n = 1\n@functools.cache\ndef f():\n    return C.n", "f()", "reads C.n"
    ),
    "cached function of a helper": (
        "import functools\ndef g():\n    return 1\n@functools.cache\ndef f():\n    return g()", "f()", "reads g,"
    ),
    "cached function of a list": (
        "import functools\nL = [1]\n@functools.cache\ndef f():\n    return L[0]", "f()", "reads L,"
    ),
    "cached function of an argument's attribute": (
        "import functools\nclass C:\n    n = 1\nc = C()\n@functools.cache\ndef f(c):\n    return c.n", "f(c)",
        "the attribute n",
    ),
    "cached function of a variable around": (
        "import functools\ndef outer():\n    n = 1\n    @functools.cache\n    def f(): return n\n    return f\n"
        "f = outer()", "f()", "reads n,",
    ),
    "cached function of a default": (
        "import functools\n@functools.cache\ndef f(x=[1]):\n    return x and 1\ndef g():\n    return f.__wrapped__()",
        "g()", "defaults",
    ),
    "cached method": (
        "import functools\nclass C:\n    n = 1\n    @functools.cache\n    def f(self):\n        return self.n\nc = C()",
        "c.f()", "the attribute n",
    ),
    "file there or not": ("import os", "os.path.exists('x')", "os.path"),
    "computed code": ("", "eval('1')", "calls eval"),
    "all globals": ("", "globals()['__name__'] == ''", "calls globals"),
    "table of modules": ("import sys", "len(sys.modules) * 0", "sys.modules"),
    "iterator": ("import itertools\nC = itertools.count()", "next(C)", "itertools.count"),
    "generator": ("G = iter([1, 2, 3, 4])", "next(G)", "list_iterator"),
    "lock": ("import threading\nL = threading.Lock()", "bool(L)", "lock"),
    "array that is too large": ("import numpy as np\nW = np.zeros(1 << 20)", "W[0]", "8388608 bytes"),
    "array of objects": ("import numpy as np\nW = np.array([None, 1])", "W[1]", "array of objects"),
    "set without order": ("S = {object()}", "len(S)", "order is not defined"),
    "counter": ("N = [0]\ndef f():\n    N[0] += 1\n    return N[0]", "f()", "changes what it reads"),
    "global counter": ("N = 0\ndef f():\n    global N\n    N += 1\n    return N", "f()", "changes what it reads"),
    "counter in a default": ("def f(n=[0]):\n    n[0] += 1\n    return n[0]", "f()", "changes what it reads"),
    "counter in a class": ("class N:\n    n = 0\ndef f():\n    N.n += 1\n    return N.n", "f()", "changes what"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_value_to_compare_is_traced_every_time(name: str, tmp_path: Path) -> None:
    around, value, reason = REFUSED[name]
    call = Remembering(load(tmp_path, around + KERNEL.format(value)).kernel)
    for _ in range(3):
        call()
        assert reason in call.doubt
    assert call.traces == 3


ACCEPTED = {
    "mathematics": ("import math", "math.ceil(0.5) + math.pi * 0", 1),
    "pure NumPy": ("import numpy as np", "np.prod((1, 2)) / np.float32(2)", 1),
    "class of NumPy": ("import numpy as np\nD = np.dtype('f4')", "D.itemsize", 4),
    "parts of paths": ("import os", "len(os.path.join('a', 'b'))", 3),
    "constant of sys": ("import sys", "sys.maxsize > 2**31", 1),
    "dataclass": ("import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass C:\n    x: int = 1", "C().x", 1),
    "copy of an object": ("import copy\nclass C:\n    x = 1\nc = C()", "copy.copy(c).x", 1),
    "abstract class": ("import abc\nclass A(abc.ABC):\n    @abc.abstractmethod\n    def f(self): ...\n"
                       "class B(A):\n    def f(self):\n        return 1", "B().f()", 1),
    "named tuple": ("import typing\nclass P(typing.NamedTuple):\n    x: int = 1", "P().x", 1),
    "old named tuple": ("import collections\nP = collections.namedtuple('P', 'x y')", "P(1, 2).y", 2),
    "flags": ("import enum\nclass F(enum.IntFlag):\n    A = 1\n    B = 2", "int(F.A | F.B)", 3),
    "record of the language": ("class C(nl.NKIObject):\n    x: int = 1\n    y: int = 2", "C(y=3).y", 3),
    "generic class": ("import typing\nT = typing.TypeVar('T')\nclass B(typing.Generic[T]):\n    x = 1", "B().x", 1),
    "logger": ("import logging\nlog = logging.getLogger('k')\ndef f():\n    log.debug('x')\n    return 1", "f()", 1),
    "context manager": ("import contextlib\n@contextlib.contextmanager\ndef c():\n    yield 1\n"
                        "def f():\n    with c() as x:\n        return x", "f()", 1),
    "recursion": ("def f(n):\n    return n if n < 1 else g(n - 1)\ndef g(n):\n    return f(n)", "f(3)", 0),
    "cycle of objects": ("A = [1]\nA.append(A)", "A[1][1][0]", 1),
    "deep list": ("A = []\nfor _ in range(5000):\n    A = [A]", "len(A)", 1),
    "function of the language": ("D = {'add': nl.add, 'region': nl.sbuf}", "len(D)", 2),
    "class with slots": ("class C:\n    __slots__ = ('x', '__y')\nc = C()\nc.x = 1", "c.x", 1),
    "cached function of its arguments": (
        "import functools, math\nfrom math import floor\n@functools.lru_cache\ndef f(n, step=2):\n"
        "    return f(n - 1) if n > 1 else math.ceil(max(n, 0) / step) + floor(n * 0) + nl.tile_size.pmax", "f(3)", 129,
    ),
    "path that is taken apart": ("import pathlib\nP = pathlib.Path('a') / 'bc.py'", "len(P.stem)", 2),
    "list with attributes": ("class L(list):\n    pass\nl = L([1, 2])\nl.x = 3", "l.x + l[0]", 4),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_has_a_value_is_traced_once(name: str, tmp_path: Path) -> None:
    around, value, result = ACCEPTED[name]
    call = Remembering(load(tmp_path, around + KERNEL.format(value)).kernel)
    assert [call(), call(), call()] == [(float(result),)] * 3
    assert call.doubt == ""
    assert call.traces == 1


def test_a_module_that_is_not_imported_yet_is_refused_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_late.py").write_text("SIZE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    around = "def f():\n    import imported_late\n    return imported_late.SIZE"
    call = Remembering(load(tmp_path, around + KERNEL.format("f()")).kernel)
    call()
    assert "not imported yet" in call.doubt
    assert (call(), call(), call.traces, call.doubt) == ((1.0,), (1.0,), 2, "")


def test_asserts_that_pytest_rewrites_are_remembered(tmp_path: Path) -> None:
    """In a test's module an assert calls functions of pytest, which say how it failed."""
    source = (
        "import nki\nimport nki.isa as nisa\nimport nki.language as nl\nCALLS = []\n\n"
        "@nki.jit\ndef kernel(x):\n    assert x.shape[0] == 128, 'partitions'\n"
        "    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n    nisa.dma_copy(dst=out, src=x)\n"
        "    return out\n\n"
        "def test_kernel():\n    x = np.ones((128, 4), np.float32)\n    kernel(x)\n"
        "    assert '@pytest_ar' in globals(), 'the module is rewritten'\n    assert kernel.report.doubt == ''\n"
    )
    (tmp_path / "test_rewritten.py").write_text("import numpy as np\n" + source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_rewritten.py")]
    environment = dict(os.environ, PYTHONPATH=str(Path(nki.__file__).parents[1]))
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert "1 passed" in done.stdout, done.stdout


def test_a_package_behind_a_link_knows_its_own_code(tmp_path: Path) -> None:
    (tmp_path / "nki").symlink_to(Path(nki.__file__).parent)
    program = (
        "import nki, nki.isa as nisa\nfrom nki.core.source import is_internal\n"
        "from nki.frontend.dependencies.foreign_code import origin_of_code\n"
        "code = type(nisa.memset).__call__.__code__\nprint(nki.__file__, origin_of_code(code), is_internal(code))"
    )
    environment = dict(os.environ, PYTHONPATH=str(tmp_path))
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [str(tmp_path / "nki/__init__.py"), "package", "True"]


def test_code_that_was_reached_in_another_way_is_noticed(tmp_path: Path) -> None:
    """A library's object that calls back: nothing in the kernel's source names what it calls."""
    module = load(tmp_path, "def hidden():\n    return fill(1)\n" + KERNEL.format(1))
    manifest = manifest_of(module.kernel.func)
    assert manifest.doubt_after([module.kernel.func.__code__, module.fill.__code__]) == ""
    assert "hidden was called" in manifest.doubt_after([module.hidden.__code__])
    assert manifest.doubt_after([string.Formatter.format.__code__]) == "", "a library's code counts by its version"


@pytest.mark.parametrize("case", ["example", *ACCEPTED])
def test_everything_that_runs_was_reached(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter's own report of what it executes, against what the manifest found without running anything."""
    if case == "example":
        monkeypatch.syspath_prepend(str(ROOT / "examples"))
        array = np.zeros((128, 512), bfloat16)
        args: tuple[Any, ...] = (array, array, np.ascontiguousarray(array.T))
        function = importlib.import_module("flash_attention").flash_attention.func
    else:
        around, value, _ = ACCEPTED[case]
        function, args = load(tmp_path, around + KERNEL.format(value)).kernel.func, ()
    manifest = manifest_of(function)
    ran: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        ran.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        tracers = trace_only(Launch(function), args, {}, load_target("trn2"), Options())
    finally:
        sys.setprofile(before)
    users = {code for code in ran if _is_users(code, function)}
    assert function.__code__ in users
    assert manifest.doubt_after(users) == ""
    assert manifest.doubt_after(executed(tracers)) == ""


def _is_users(code: CodeType, function: Any) -> bool:
    return code.co_filename == function.__code__.co_filename


def test_the_digest_is_the_same_in_every_process() -> None:
    program = (
        "import sys; sys.path.insert(0, 'examples')\n"
        "import flash_attention as f\nfrom nki.frontend.dependencies.manifest import manifest_of\n"
        "print(manifest_of(f.flash_attention.func).digest)"
    )
    digests = set()
    for seed in ("0", "1", "77"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, check=True)
        digests.add(done.stdout.decode().strip())
    assert len(digests) == 1
    assert len(digests.pop()) == 64


def test_constants_of_different_types_differ() -> None:
    values = [
        None,
        True,
        1,
        1.0,
        0.0,
        -0.0,
        1j,
        "1",
        b"1",
        (1,),
        (1.0,),
        ((1,),),
        (),
        frozenset({1}),
        ...,
        "",
        b"",
        0,
        False,
    ]
    assert len({encoded(value) for value in values}) == len(values)
    assert encoded(("a", "bc")) != encoded(("ab", "c"))
    assert encoded(float("nan")) == encoded(float("nan"))


def test_lines_count_because_errors_name_them() -> None:
    one, two = (compile("\n" * lines + "def f():\n    return g.a.b", "file", "exec") for lines in (0, 1))
    assert facts_of(one).digest != facts_of(two).digest
    assert [(read.name, read.attributes) for read in facts_of(one).reads] == [("g", ("a", "b"))]


def test_every_kind_of_probe_notices_a_touch() -> None:
    class Slotted:
        __slots__ = ("x",)

    cell = (lambda x: lambda: x)(1).__closure__[0]  # type: ignore[index, misc]
    names, items, array, data, owner = {"a": 1}, [1], np.zeros(2), bytearray(b"a"), Slotted()
    touches = {
        "name": (lambda p: p.name(names, "b"), lambda: names.update(b=2)),
        "mapping": (lambda p: p.mapping(names), lambda: names.update(a=2)),
        "sequence": (lambda p: p.sequence(items), lambda: items.reverse() or items.append(1)),
        "array": (lambda p: p.array(array), lambda: array.fill(1)),
        "bytearray": (lambda p: p.bytearray(data), lambda: data.extend(b"b")),
        "slot": (lambda p: p.slot(vars(Slotted)["x"], owner), lambda: setattr(owner, "x", 1)),
        "cell": (lambda p: p.cell(cell), lambda: setattr(cell, "cell_contents", 2)),
    }
    for name, (watch, touch) in touches.items():
        probes = Probes()
        watch(probes)
        assert probes.untouched(), name
        touch()
        assert not probes.untouched(), name


def test_the_standard_library_is_told_from_installed_packages() -> None:
    from nki.frontend.dependencies.foreign_code import origin_of_code, origin_of_module

    def made(file: str) -> CodeType:
        return compile("0", file, "exec")

    assert origin_of_code(made(sysconfig.get_path("stdlib") + "/json/encoder.py")) == "standard"
    assert origin_of_code(made(sysconfig.get_path("purelib") + "/kernels/attention.py")) == "user"
    assert origin_of_code(made(sysconfig.get_path("purelib") + "/numpy/_core/x.py")) == "library"
    assert origin_of_code(call.__code__) == "package"
    assert origin_of_module("nki.language") == "package"
    assert origin_of_module("numpy.linalg") == "library"
    assert origin_of_module("not_a_module") == "user"


def test_a_ufunc_without_a_module_counts_by_its_name() -> None:
    kept, made = scipy.special.erf, np.frompyfunc(abs, 1, 1)

    def with_library(a: Any) -> Any:
        return kept(3), a

    def with_own(a: Any) -> Any:
        return made(3), a

    assert not hasattr(kept, "__module__")
    assert manifest_of(with_library, ()).digest
    assert "frompyfunc" in manifest_of(with_own, ()).reason


def test_kernels_that_one_line_of_the_package_makes_are_told_apart() -> None:
    """Such as those of the graph compiler: the code is the same, what they close over is not."""

    def made(op: str) -> str:
        value = Value(TensorType((128, 8), nl.float32))
        result = Value(TensorType((128, 8), nl.float32))
        group = Group("pointwise", (Op(op, (value,), (result,)),), (value,), (result,))
        return manifest_of(EMITTERS["pointwise"](group, load_target("trn2"))).digest

    assert made("negate")
    assert made("negate") == made("negate") != made("abs")


def _reading(value: Any) -> Any:
    def kernel(tile: Any) -> None:
        value(tile, 1.0)

    return kernel


def test_instructions_of_the_package_count_by_name_and_others_by_value() -> None:
    own = [manifest_of(_reading(each)) for each in (nisa.memset, nisa.memset, nisa.tensor_copy)]
    assert [each.reason for each in own] == [""] * 3
    assert own[0].digest == own[1].digest != own[2].digest
    other = copy.copy(nisa.memset)
    other.__module__ = __name__
    before = manifest_of(_reading(other))
    other.rules = ()
    assert len({own[0].digest, before.digest, manifest_of(_reading(other)).digest}) == 3
