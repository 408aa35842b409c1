"""The language check: what tracing cannot capture and what is not pure, with the exact code and columns."""

from __future__ import annotations

import gc
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import FrontendError
from nki.frontend.check.language_check import check_function
from tests.frontend.check.checking import HEAD, Load, expect, found, marked

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


def test_a_default_that_is_a_list_is_a_setting(load: Load) -> None:
    expect(load, "def kernel(a, stride=[1, 1], *, pad=[], size=(1, 1)):\n    pass\n")


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
