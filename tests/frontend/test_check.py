"""The language check: what it says about a snippet, with the exact code and the columns below the caret."""

from __future__ import annotations

import gc
import importlib.util
import itertools
import sys
import textwrap
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import FrontendError
from nki.frontend.check import check_function
from nki.spec.rule import Finding
from tests.tools.running import nki as command
from tests.tools.running import nki_json

HEAD = """\
import enum
import math
import functools
import numpy as np
import nki
import nki.isa as nisa
import nki.language as nl
"""

_NUMBERS = itertools.count()
Load = Callable[[str], ModuleType]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Imports a snippet from a file of its own."""
    made: list[str] = []

    def from_text(text: str) -> ModuleType:
        name = f"snippet_{next(_NUMBERS)}"
        path = tmp_path / f"{name}.py"
        path.write_text(HEAD + textwrap.dedent(text), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        made.append(name)
        spec.loader.exec_module(module)
        return module

    yield from_text
    for name in made:
        del sys.modules[name]


def marked(text: str) -> tuple[str, list[str]]:
    """The text without the markers « and », and what stands between them as ``line:first-last``.

    Written without any syntax tree, so that it is independent of what finds the columns.
    """
    places = []
    lines = textwrap.dedent(text).split("\n")
    for number, line in enumerate(lines, 1 + HEAD.count("\n")):
        while "«" in line:
            start = line.index("«")
            line = line.replace("«", "", 1)
            end = line.index("»")
            line = line.replace("»", "", 1)
            places.append(f"{number}:{start}-{end}")
        lines[number - 1 - HEAD.count("\n")] = line
    return "\n".join(lines), places


def place(finding: Finding) -> str:
    frame = finding.location.frame
    assert frame is not None and frame.end_line == frame.line
    return f"{frame.line}:{frame.column}-{frame.end_column}"


def found(load: Load, text: str, frontend: str = "0.7") -> list[tuple[str, str, str]]:
    kernel = load(text).kernel
    return [(f.severity, f.code, place(f)) for f in check_function(kernel, frontend)]


def expect(load: Load, text: str, *said: str, frontend: str = "0.7") -> None:
    """`said` are ``severity code`` of the marked places, in their order in the text."""
    plain, places = marked(text)
    assert len(places) == len(said)
    wanted = [(*each.split(), where) for each, where in zip(said, places, strict=True)]
    assert sorted(found(load, plain, frontend)) == sorted(wanted)


# ------------------------------------------------------------------------------------------ what tracing cannot capture


def test_a_generator(load: Load) -> None:
    expect(load, "def kernel(a):\n    «yield a»\n    yield a\n", "error python.generator")
    expect(load, "def kernel(a):\n    x = «yield from a»\n", "error python.generator")


def test_a_generator_that_the_kernel_calls_is_python(load: Load) -> None:
    expect(
        load,
        "def tiles(n):\n    for i in range(n):\n        yield i\ndef kernel(a):\n    return [i for i in tiles(3)]\n",
    )
    expect(load, "def kernel(a):\n    def tiles():\n        yield a\n    for x in tiles():\n        print(x)\n")


def test_a_coroutine(load: Load) -> None:
    expect(load, "async def «kernel»(a):\n    return a\n", "error python.async")


def test_the_variable_of_a_dynamic_range(load: Load) -> None:
    text = """
    def kernel(a):
        for i in nl.dynamic_range(4):
            «i» += 1
            j, «i» = 1, 2
        i = 3
        for i in range(3):
            i += 1
    """
    expect(load, text, "error python.loop-variable", "error python.loop-variable")


def test_the_variable_of_a_fori_loop(load: Load) -> None:
    text = """
    def kernel(a):
        def body(i):
            «i» = i + 1
        def other(i):
            i = i + 1
        def state(r):
            r = r
            return r
        nl.fori_loop(0, 4, body)
        other(3)
        nl.while_loop(nisa.register_alloc(1), state)
    """
    expect(load, text, "error python.loop-variable")


def test_the_driver_raises_errors_before_it_traces(load: Load) -> None:
    kernel = load("ran = []\ndef kernel(a):\n    ran.append(1)\n    yield a\n")
    for made in (nki.jit(kernel.kernel), nki.simulate(kernel.kernel)):
        with pytest.raises(FrontendError) as caught:
            made(np.zeros((4, 4), np.float32))
        assert caught.value.code == "python.generator"
        assert "^^^^^^^" in str(caught.value)
        assert [other.code for other in caught.value.found] == ["purity.write"]
    assert not kernel.ran


# --------------------------------------------------------------------------------------------------------- pure kernels


def test_globals_that_functions_change(load: Load) -> None:
    text = """
    SCALE, TABLE, LIMITS, SIZE = 1.0, {}, [1, 2], 128
    TABLE["a"] = 1
    LIMITS.append(3)
    def set_scale(value):
        global SCALE
        SCALE = value
        TABLE["b"] = value
    def kernel(a):
        x = «SCALE» * LIMITS[0] * SIZE + SCALE
        return helper(x)
    def helper(x):
        return x + «TABLE»["a"]
    """
    expect(load, text, "warning purity.global", "warning purity.global")


def test_globals_that_only_the_module_makes_are_constants(load: Load) -> None:
    text = """
    TABLE = {}
    for name in ("a", "b"):
        TABLE[name] = 1
    SIZE = 64
    SIZE = 128
    def uses(TABLE):
        TABLE["a"] = 2
    def local():
        SIZE = 3
        TABLE = []
        TABLE.append(SIZE)
    def kernel(a):
        return TABLE["a"] + SIZE
    """
    expect(load, text)


def test_a_chain_of_calls_leads_to_a_helper(load: Load) -> None:
    text = """
    LOG = []
    def inner(x):
        LOG.append(x)
    def outer(x):
        inner(x)
    def kernel(a):
        outer(a)
    """
    said = [f for f in check_function(load(text).kernel) if f.code == "purity.write"]
    assert [(frame.function, frame.line) for frame in said[0].location.frames] == [
        ("inner", 11),
        ("outer", 13),
        ("kernel", 15),
    ]
    assert "called from" in said[0].location.chain()


def test_variables_around_the_kernel(load: Load) -> None:
    text = """
    def make():
        scale, sizes, steps, count = 1.0, [1], [2], 0
        sizes.append(2)
        def kernel(a):
            return a, «scale», sizes, «steps», «count»
        def step():
            nonlocal count
            count += 1
        scale = 2.0
        steps.append(3)
        return kernel
    kernel = make()
    """
    expect(load, text, *["warning purity.closure"] * 3)


def test_a_kernel_made_in_a_loop_reads_what_was_before(load: Load) -> None:
    text = """
    def make():
        for scale in (1, 2):
            size = scale * 2
            def kernel(a):
                return scale + size
        return kernel
    kernel = make()
    """
    expect(load, text)


def test_writes_to_what_outlives_the_kernel(load: Load) -> None:
    text = """
    COUNT, SEEN, SETTINGS = 0, [], type("S", (), {})()
    def make():
        total = 0
        def kernel(a):
            global COUNT
            nonlocal total
            «COUNT» += 1
            «total» = 3
            «SEEN.append(a)»
            «SEEN[0]» = a
            «SETTINGS.depth» = 1
            mine = []
            mine.append(a)
            def nested():
                mine.append(1)
            nested()
        return kernel
    kernel = make()
    """
    expect(load, text, *["warning purity.write"] * 5)


def test_methods_of_other_objects_may_do_anything(load: Load) -> None:
    text = """
    class Pool:
        def append(self, x):
            return x
    POOL = Pool()
    def kernel(a):
        POOL.append(a)
        math.floor(2.0)
    """
    expect(load, text)


def test_objects_that_the_caller_passed(load: Load) -> None:
    text = """
    def kernel(a, config, sizes, table, own):
        «config.depth» = 3
        «sizes.append(1)»
        «table["x"]» = 2
        own = dict(own)
        own["x"] = 1
        config.limits.depth = 2
        fill([], 1)
    def fill(out, x):
        out.append(x)
    """
    expect(load, text, *["warning purity.argument"] * 3)


def test_a_default_that_is_a_list(load: Load) -> None:
    expect(
        load, "def kernel(a, stride=«[1, 1]», *, pad=«[]», size=(1, 1)):\n    pass\n", *["warning argument.list"] * 2
    )
    expect(load, "def kernel(a):\n    return helper(a)\ndef helper(a, stride=[1]):\n    return a\n")


# --------------------------------------------------------------------------------------------------- tensors, registers


def test_functions_of_the_host_on_tensors(load: Load) -> None:
    text = """
    def kernel(a, b, scale):
        rows, columns = a.shape
        x = nl.load(a)
        «np.exp(x)»
        «np.exp(a)»
        y = «np.linalg.norm(x[0:1].reshape((1, 4)))»
        z = «math.sqrt(nl.load(a))»
        np.sqrt(scale), np.prod(a.shape), np.shape(a), math.ceil(rows / 128), np.add(1, 2), np.exp(b)
        nisa.tensor_tensor(dst=x, data1=x, data2=x, op=np.add)
    """
    expect(load, text, *["warning tensor.numpy"] * 4)


def test_tensors_are_followed_into_helpers(load: Load) -> None:
    text = """
    def helper(x, n):
        return «np.exp(x)», np.sqrt(n)
    def host(x, n):
        return np.exp(x).shape, x.shape
    def kernel(a):
        host(np.eye(128), 3)
        return helper(nl.load(a), n=4)
    """
    expect(load, text, "warning tensor.numpy")


def test_a_name_with_two_meanings_is_not_judged(load: Load) -> None:
    text = """
    def kernel(a, flag):
        x = nl.load(a)
        if flag:
            x = 3.0
        if x:
            return np.exp(x)
        b = a.shape
        a = np.zeros(3)
        return np.exp(a)
    """
    expect(load, text)


def test_assignment_into_tensors(load: Load) -> None:
    text = """
    def kernel(a, sizes):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        out[0:128, :] = nl.load(a)
        out[0] = 0
        a[0] = out[0]
        tiles = [out]
        tiles[0] = nisa.dma_copy(dst=out, src=a)
        «out[0:128, :]» = nisa.dma_copy(dst=out, src=a)
        «a[1]» = None
        «out[0]» = tiles[0] = [1, 2]
        return out
    """
    expect(load, text, *["warning tensor.assignment"] * 3)


def test_operators_that_assign(load: Load) -> None:
    text = """
    def kernel(a, n):
        x = nl.load(a)
        «x[0:64]» += 1
        «a[0]» *= x
        n += a.shape[0]
        return x
    """
    expect(load, text, *["warning tensor.arithmetic"] * 2)


def test_what_is_advised_for_an_operator_that_changes_a_part(load: Load) -> None:
    text = """
    def kernel(a):
        x = nl.load(a)
        n = a.shape[0]
        x[0:4] /= 2
        x[0:4] /= n
        x[0:4] /= n + 1
        x[0:4] /= x
        x[0:4] //= 3
        a[0] %= x
        return x
    """
    kernel = load(text).kernel
    assert [finding.fix for finding in check_function(kernel) if finding.code == "tensor.arithmetic"] == [
        "write x[0:4] = nl.multiply(x[0:4], 1 / 2)",
        "write x[0:4] = nl.multiply(x[0:4], 1 / n)",
        "write x[0:4] = nl.multiply(x[0:4], 1 / (n + 1))",
        "write x[0:4] = nl.multiply(x[0:4], nl.reciprocal(x))",
        "write x[0:4] = nl.floor(nl.multiply(x[0:4], 1 / 3))",
        "write a[0] = nl.mod(nl.load(a[0]), x)",
    ]


def test_parameters_that_are_written_like_tensors(load: Load) -> None:
    text = """
    def kernel(a, rows, out, table):
        out[...] = nl.load(a)
        rows[0:128] = nl.load(a)
        «table["key"]» = 1
        «table[0]» = 1
    """
    expect(load, text, *["warning purity.argument"] * 2)
    expect(load, "def kernel(out):\n    out[:, 0] = 0\n    return «np.exp(out)»\n", "warning tensor.numpy")


def test_conditions_that_are_tensors(load: Load) -> None:
    text = """
    def kernel(a, mask=None):
        x = nl.load(a)
        if «x» and not «nl.equal(x, x)»:
            pass
        while «x[0:1]»:
            pass
        assert «x», "message"
        y = 1 if «x» else 2
        if x is None or mask or x.shape[0] > 1 or a:
            pass
        mask.shape
        return x or y
    """
    expect(load, text, *["warning tensor.truth"] * 5)


def test_registers_are_no_numbers(load: Load) -> None:
    text = """
    def kernel(a, b):
        r = nisa.register_alloc(1)
        n = nisa.scalar_load(b)
        while r:
            pass
        while n > 3:
            pass
        if «r»:
            pass
        if «n»:
            pass
        if «n > 3»:
            pass
        if «r == 1», 2:
            pass
        z = «r is n»
        y = r is None or r == None or n == 4
        «int(r)»
        for i in «range(n)»:
            pass
        for j in nl.dynamic_range(4):
            if «j»:
                pass
    """
    expect(load, text.replace("if «r == 1», 2:", "if [«r == 1»]:"), *["warning register.python-value"] * 8)


def test_results_that_nobody_takes(load: Load) -> None:
    text = """
    def kernel(a):
        x = nl.load(a)
        «nl.exp(x)»
        «x.reshape((4, 4))»
        nl.store(a, x)
        nisa.tensor_copy(dst=x, src=x)
        nl.device_print("x", x)
        print(x)
        y = nl.exp(x)
        a.append(1)
    """
    plain, places = marked(text)
    said = [each for each in found(load, plain) if each[1] == "tensor.unused"]
    assert said == [("warning", "tensor.unused", where) for where in places]


def test_columns_count_characters(load: Load) -> None:
    expect(load, 'def kernel(a):\n    x = nl.load(a); s = "größe µ"; «np.exp(x)»\n', "warning tensor.numpy")


# ---------------------------------------------------------------------------------------- what is read, and what is not


def test_libraries_and_kernels_without_source_are_left_alone(load: Load) -> None:
    names: dict[str, Any] = {}
    exec("def kernel(a):\n    yield a\n", names)
    assert check_function(names["kernel"]) == ()
    assert check_function(len) == ()
    expect(
        load,
        "import json\ndef kernel(a):\n    return json.dumps(np.linalg.norm([1.0])) + textwrap(a)\ntextwrap = str\n",
    )


def test_a_file_that_changed_is_not_read(load: Load) -> None:
    module = load("def kernel(a):\n    return a\n")
    assert module.__file__ is not None
    Path(module.__file__).write_text(HEAD + "def other(a):\n    yield a\n", encoding="utf-8")
    assert check_function(module.kernel) == ()
    module = load("def kernel(a):\n    return a\n")
    Path(str(module.__file__)).write_text("def kernel(:\n", encoding="utf-8")
    assert check_function(module.kernel) == ()


def test_decorators_partials_and_recursion(load: Load) -> None:
    text = """
    def wrapper(f):
        @functools.wraps(f)
        def call(*args):
            return f(*args)
        return call
    @wrapper
    def decorated(x, depth=0):
        «np.exp(x)»
        decorated(x, depth + 1)
    bound = functools.partial(decorated)
    @nki.jit
    def kernel(a):
        bound(nl.load(a))
        first(a)
    def first(a):
        second(a)
    def second(a):
        first(a)
    kernel = kernel.func
    """
    plain = marked(text)[0]
    # A partial object may fill any parameter, so tensors are followed through the plain call only.
    assert found(load, plain) == []
    expect(load, text.replace("bound(nl", "decorated(nl"), "warning tensor.numpy")


def test_what_was_found_is_remembered_and_closures_are_not_kept(load: Load) -> None:
    class Big:
        pass

    module = load("def make(big):\n    def kernel(a):\n        yield big\n    return kernel\n")
    big = Big()
    alive, kernel = weakref.ref(big), module.make(big)
    first = check_function(kernel)
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        assert check_function(kernel) is first
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.002
    del big, kernel
    gc.collect()
    assert alive() is None


def test_warnings_are_in_the_report_and_do_not_stop() -> None:
    seen: list[Any] = []

    @nki.jit
    def kernel(a: Any) -> Any:
        seen.append(a.shape)
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=a)
        return out

    for made in (kernel, nki.simulate(kernel)):
        made(np.zeros((4, 8), np.float32))
        assert made.report is not None
        assert [f.code for f in made.report.findings] == ["purity.write"]


# --------------------------------------------------------------------------------------- what the parser front end says


def test_identity(load: Load) -> None:
    text = """
    def kernel(a, flag=None):
        if «flag is True» and «flag is not a» and «flag is not None»:
            pass
        if flag == True and flag in (1, 2):
            pass
    """
    said = ("error parser.identity", "error parser.identity", "warning parser.identity")
    expect(load, text, *said, frontend="0.6")
    expect(load, marked(text)[0])


def test_signatures(load: Load) -> None:
    text = "def kernel(a, b: «list[int]», *, «c»=1, d: tuple[int, ...] = «[2]»):\n    return helper(a, c=1)\n"
    text += "def helper(a, *, c, b: list = ()):\n    return a\n"
    said = ("error argument.list", "error parser.keyword-only", "error argument.list")
    expect(load, text, *said, frontend="0.6")


def test_classes(load: Load) -> None:
    text = """
    class Good(nl.NKIObject):
        pass
    class Derived(Good):
        pass
    class Plain:
        pass
    class Mode(enum.Enum):
        a = 1
    class Failed(ValueError):
        pass
    def kernel(a):
        Good(), Mode(1), dict(), tuple(a), Failed("x")
        «Derived»()
        «Plain»()
    """
    expect(load, text, *["error parser.class"] * 2, frontend="0.6")
    expect(load, marked(text)[0])


def test_keys_of_dicts(load: Load) -> None:
    text = 'def kernel(a):\n    return {"a": 1, «1»: 2, «(1, 2)»: 3, a: 4, **{}}\n'
    expect(load, text, *["error parser.dict-key"] * 2, frontend="0.6")


def test_kernels_called_by_kernels(load: Load) -> None:
    text = """
    @nki.jit
    def inner(a):
        return a
    def kernel(a):
        return «inner»(a)
    """
    expect(load, text, "warning parser.sub-kernel", frontend="0.6")


def test_the_old_namespace(load: Load) -> None:
    text = """
    import types
    old = types.ModuleType("neuronxcc.nki.isa")
    def kernel(a):
        «old».add(a)
        «from neuronxcc.nki import language»
        nisa.get_nc_version()
    """
    expect(load, text, *["error parser.namespace"] * 2, frontend="0.6")


def test_arithmetic_on_registers(load: Load) -> None:
    text = """
    def kernel(a):
        n = nisa.register_alloc(1)
        for i in nl.dynamic_range(4):
            x = «i * 2»
        for i in range(4):
            x = i * 2
        def body(i):
            return «i < 3»
        nl.fori_loop(0, 4, body)
    """
    expect(
        load,
        text.replace("for i in range(4):\n            x = i * 2", "for j in range(4):\n            x = j * 2"),
        *["error parser.register-arithmetic"] * 2,
        frontend="0.6",
    )


def test_what_the_guide_does_not_describe_is_a_warning(load: Load) -> None:
    text = """
    def kernel(a):
        x = «[i for i in range(3)]»
        y = sorted(x, key=«lambda v: -v»)
        «try»:
            pass
        finally:
            pass
        «with» open("x"):
            pass
        with nl.no_reorder():
            pass
        return tuple(«(i for i in x)»), {i: i for i in y} if False else None
    """.replace("{i: i for i in y}", "«{i: i for i in y}»")
    expect(load, text, *["warning parser.undescribed"] * 6, frontend="0.6")
    expect(load, marked(text)[0])


def test_every_finding_is_complete(load: Load) -> None:
    text = "def kernel(a, b=[], *, c=1):\n    x = nl.load(a)\n    if x is True:\n        np.exp(x)\n    nl.exp(x)\n"
    said = check_function(load(text).kernel, "0.6")
    assert len({f.code for f in said}) == 5
    for finding in said:
        assert finding.message and finding.rule and finding.source and finding.fix
        assert not finding.message.endswith(".")
        assert finding.to_json()["location"]


def test_numpy_is_a_warning_where_no_tensor_takes_part(load: Load) -> None:
    text = """
    SCALE = float(np.sqrt(64))
    def kernel(a, size=64):
        scale = 1.0 / «np.sqrt(size)» * «np.sqrt(size + 1)»
        half = «np.maximum(size, 3)» // 2
        if a.dtype == np.float32 and a.dtype != np.dtype:
            scale = math.sqrt(size) * math.ceil(size / 3) + np.pi + size ** -0.5 + SCALE
        return helper(a, half * scale)
    def helper(a, number):
        return nl.multiply(nl.load(a), «np.abs(number)»)
    """
    expect(load, text, *["warning parser.numpy"] * 4, frontend="0.6")
    expect(load, marked(text)[0])
    fixes = [finding.fix for finding in check_function(load(marked(text)[0]).kernel, "0.6")]
    assert fixes == [
        "compute it outside the kernel, or write size ** 0.5",
        "compute it outside the kernel, or write (size + 1) ** 0.5",
        *["compute it outside the kernel, and use the number"] * 2,
    ]


def test_numpy_with_a_tensor_is_told_once(load: Load) -> None:
    text = "def kernel(a):\n    x = nl.load(a)\n    return «np.sqrt(x)»\n"
    expect(load, text, "warning tensor.numpy", frontend="0.6")


# ---------------------------------------------------------------------------------------------------------- `nki check`

MISTAKES = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(a, flag=True):
    tile = nl.load(a)
    nl.exp(tile)
    if flag is True:
        print(a.shape)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    if tile[:, 0:1]:
        pass
    return out
"""


@pytest.fixture
def mistakes(tmp_path: Path) -> str:
    path = tmp_path / "mistakes.py"
    path.write_text(MISTAKES, encoding="utf-8")
    return str(path)


def test_the_command_reports_both_and_nothing_twice(mistakes: str) -> None:
    told = nki_json("check", mistakes, "--arg", "a=128x8:float32", code=1)
    assert [(f["severity"], f["code"]) for f in told["findings"]] == [
        ("warning", "tensor.unused"),
        ("error", "tensor.truth"),
    ]


def test_the_command_checks_for_the_parser_front_end(mistakes: str) -> None:
    shown = command(
        "check", mistakes, "--arg", "a=128x8:float32", "--frontend", "0.6", "--allow", "tensor.unused", code=1
    )
    assert "error[parser.identity]: flag is True compares with is" in shown.stderr
    assert "10 |     if flag is True:\n      |        ^^^^^^^^^^^^" in shown.stderr
    assert "tensor.unused" not in shown.stderr
    assert shown.stdout.endswith("refused (2 errors, 0 warnings)\n")


def test_the_command_knows_its_front_ends(mistakes: str) -> None:
    command("check", mistakes, "--arg", "a=128x8:float32", "--frontend", "0.5", code=2)
