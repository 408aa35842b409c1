"""An edit of anything that a kernel reads makes it be traced again, and gives the new result; no edit does not."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.frontend.dependencies.remembering import Remembering, load


@dataclass(frozen=True)
class Edit:
    """A module that defines `kernel`, a change of it, and what the kernel fills its result with before and after."""

    source: str
    change: Callable[[ModuleType], Any]
    before: float
    after: float


def kernel(value: str, around: str = "") -> str:
    return f"{around}\n\n@nki.jit\ndef kernel():\n    return fill({value})\n"


def assign(path: str, value: Any) -> Callable[[ModuleType], None]:
    """``module.a.b = value``"""

    def change(module: ModuleType) -> None:
        *owners, name = path.split(".")
        owner: Any = module
        for each in owners:
            owner = getattr(owner, each)
        setattr(owner, name, value(module) if callable(value) and not isinstance(value, type) else value)

    return change


def execute(source: str) -> Callable[[ModuleType], None]:
    return lambda module: exec(source, vars(module))


HELPERS = "def inner():\n    return 1\ndef middle():\n    return inner()\ndef helper():\n    return middle()\n"
DEFAULT = "def helper(x=1, *, y=0):\n    return x + y\n"
CONFIG = "import dataclasses\n@dataclasses.dataclass\nclass Config:\n    tile: int = 1\n"
CLASS = "class Base:\n    SIZE = 1\nclass Sizes(Base):\n    def get(self):\n        return self.SIZE\nsizes = Sizes()\n"
MODE = "import enum\nclass Mode(enum.Enum):\n    A = 1\n    B = 2\n"
CLOSURE = "def outer():\n    size = 1\n    def set_size(x):\n        nonlocal size\n        size = x\n"
NESTED = "TABLE = {'a': [1, (2, {'b': 1})]}\n"
DECORATED = (
    "import functools\nOFFSET = 0\ndef shifted(f):\n    @functools.wraps(f)\n"
    "    def call():\n        return f() + OFFSET\n    return call\n@shifted\ndef helper():\n    return 1\n"
)

EDITS: dict[str, Edit] = {
    "global": Edit(kernel("SIZE", "SIZE = 1"), assign("SIZE", 2), 1, 2),
    "global of equal value and another type": Edit(kernel("isinstance(X, bool)", "X = 1"), assign("X", True), 0, 1),
    "sign of zero": Edit(kernel("str(ZERO) == '-0.0'", "ZERO = 0.0"), assign("ZERO", -0.0), 0, 1),
    "global that hides a builtin": Edit(kernel("len('ab')"), execute("def len(x):\n    return 7"), 2, 7),
    "global that appears": Edit(
        kernel("helper()", "def helper():\n    try:\n        return LATE\n    except NameError:\n        return 1"),
        assign("LATE", 2), 1, 2,
    ),
    "helper replaced": Edit(kernel("helper()", HELPERS), execute("def helper():\n    return 2"), 1, 2),
    "helper of a helper replaced": Edit(kernel("helper()", HELPERS), execute("def inner():\n    return 2"), 1, 2),
    "code of a helper": Edit(
        kernel("helper()", HELPERS), lambda m: setattr(m.inner, "__code__", (lambda: 2).__code__), 1, 2
    ),
    "constant in nested code": Edit(
        kernel("helper()", "def helper():\n    return [x + 1 for x in (0,)][0]"),
        execute("def helper():\n    return [x + 2 for x in (0,)][0]"), 1, 2,
    ),
    "default": Edit(kernel("helper()", DEFAULT), assign("helper.__defaults__", (2,)), 1, 2),
    "default of a keyword": Edit(kernel("helper()", DEFAULT), assign("helper.__kwdefaults__", {"y": 3}), 1, 4),
    "default of a keyword in place": Edit(
        kernel("helper()", DEFAULT), lambda m: m.helper.__kwdefaults__.update(y=4), 1, 5
    ),
    "mutable default in place": Edit(
        kernel("helper()", "def helper(x=[1]):\n    return x[0]"), lambda m: m.helper.__defaults__[0].insert(0, 2), 1, 2
    ),
    "attribute of a function": Edit(
        kernel("helper.size", "def helper(): pass\nhelper.size = 1"), assign("helper.size", 2), 1, 2
    ),
    "first attribute of a function": Edit(
        kernel("getattr(helper, 'size', 1)", "def helper(): pass"), assign("helper.size", 2), 1, 2
    ),
    "closure": Edit(
        CLOSURE + "    @nki.jit\n    def kernel():\n        return fill(size)\n    return kernel, set_size\n"
        "kernel, set_size = outer()\n", lambda m: m.set_size(2), 1, 2,
    ),
    "closure of a helper": Edit(
        CLOSURE + "    def get():\n        return size\n    return get, set_size\nget, set_size = outer()\n"
        + kernel("get()"),
        lambda m: m.set_size(2), 1, 2,
    ),
    "default of a dataclass": Edit(
        kernel("Config().tile", CONFIG), assign("Config.__init__.__defaults__", (2,)), 1, 2
    ),
    "dataclass defined again": Edit(
        kernel("Config().tile", CONFIG), execute(CONFIG.replace("= 1", "= 2")), 1, 2
    ),
    "attribute of a dataclass's instance": Edit(
        kernel("config.tile", CONFIG + "config = Config()\n"), assign("config.tile", 2), 1, 2
    ),
    "default factory": Edit(
        kernel("Config().tiles[0]", "import dataclasses\ndef make():\n    return [1]\n@dataclasses.dataclass\n"
               "class Config:\n    tiles: list = dataclasses.field(default_factory=lambda: make())\n"),
        execute("def make():\n    return [2]"), 1, 2,
    ),
    "attribute of a class": Edit(kernel("Sizes.SIZE", CLASS), assign("Sizes.SIZE", 2), 1, 2),
    "attribute of a base class": Edit(kernel("sizes.get()", CLASS), assign("Base.SIZE", 2), 1, 2),
    "attribute of an instance": Edit(kernel("sizes.get()", CLASS), assign("sizes.SIZE", 2), 1, 2),
    "method": Edit(kernel("sizes.get()", CLASS), assign("Sizes.get", lambda m: lambda self: 2), 1, 2),
    "class of an instance": Edit(
        kernel("sizes.get()", CLASS + "class Other(Base):\n    def get(self):\n        return 2\n"),
        assign("sizes.__class__", lambda m: m.Other), 1, 2,
    ),
    "all attributes of an instance": Edit(
        kernel("sizes.get()", CLASS), assign("sizes.__dict__", {"SIZE": 2}), 1, 2
    ),
    "bases of a class": Edit(
        kernel("Sizes().get()", CLASS + "class Other:\n    SIZE = 2\n"),
        assign("Sizes.__bases__", lambda m: (m.Other,)), 1, 2,
    ),
    "slot": Edit(
        kernel("point.x", "class Point:\n    __slots__ = ('x',)\npoint = Point()\npoint.x = 1"),
        assign("point.x", 2), 1, 2,
    ),
    "property": Edit(
        kernel("sizes.size", "class Sizes:\n    size = property(lambda self: 1)\nsizes = Sizes()"),
        assign("Sizes.size", lambda m: property(lambda self: 2)), 1, 2,
    ),
    "value of an enum": Edit(kernel("Mode.A.value", MODE), assign("Mode.A._value_", 3), 1, 3),
    "enum defined again": Edit(kernel("Mode.A.value", MODE), execute(MODE.replace("A = 1", "A = 3")), 1, 3),
    "member of an enum": Edit(kernel("mode.value", MODE + "mode = Mode.A\n"), assign("mode", lambda m: m.Mode.B), 1, 2),
    "list in place": Edit(kernel("TILES[0]", "TILES = [1]"), lambda m: m.TILES.__setitem__(0, 2), 1, 2),
    "list grown": Edit(kernel("len(TILES)", "TILES = [1]"), lambda m: m.TILES.append(2), 1, 2),
    "dict in place": Edit(kernel("T['a']", "T = {'a': 1}"), lambda m: m.T.update(a=2), 1, 2),
    "order of a dict": Edit(
        kernel("list(T)[0] == 'b'", "T = {'a': 1, 'b': 1}"), lambda m: m.T.update(a=m.T.pop("a")), 0, 1
    ),
    "set in place": Edit(kernel("len(S)", "S = {1}"), lambda m: m.S.add(2), 1, 2),
    "deep inside": Edit(
        kernel("TABLE['a'][1][1]['b']", NESTED), lambda m: m.TABLE["a"][1][1].update(b=2), 1, 2
    ),
    "array in place": Edit(
        kernel("W[0]", "import numpy as np\nW = np.ones(3)"), lambda m: m.W.__setitem__(0, 2), 1, 2
    ),
    "array of another dtype": Edit(
        kernel("W.itemsize", "import numpy as np\nW = np.zeros(2, np.int32)"), assign("W", np.zeros(2, np.int64)), 4, 8
    ),
    "dtype": Edit(kernel("D == nl.float16", "D = nl.float32"), execute("D = nl.float16"), 0, 1),
    "partial": Edit(
        kernel("p()", "import functools\ndef add(a, b):\n    return a + b\np = functools.partial(add, 1, b=0)"),
        execute("p = functools.partial(add, 1, b=1)"), 1, 2,
    ),
    "cached helper": Edit(
        kernel("h()", "import functools\n@functools.lru_cache\ndef h():\n    return 1"),
        execute("@functools.lru_cache\ndef h():\n    return 2"), 1, 2,
    ),
    "attribute of a kernel": Edit(
        kernel("part.size", "@nki.jit\ndef part(): pass\npart.size = 1"), assign("part.size", 2), 1, 2
    ),
    "first attribute of a kernel": Edit(
        kernel("part.size if hasattr(part, 'size') else 1", "@nki.jit\ndef part(): pass"), assign("part.size", 2), 1, 2
    ),
    "attribute of the kernel itself": Edit(
        kernel("kernel.size") + "kernel.size = 1\n", assign("kernel.size", 2), 1, 2
    ),
    "what a decorator reads": Edit(kernel("helper()", DECORATED), assign("OFFSET", 1), 1, 2),
    "what a decorator wraps": Edit(
        kernel("helper()", DECORATED), lambda m: setattr(m.helper.__wrapped__, "__code__", (lambda: 5).__code__), 1, 5
    ),
    "kernel that is called": Edit(
        kernel("f()", "SIZE = 1\n@nki.jit\ndef part():\n    return SIZE\ndef f():\n    return part()"),
        assign("SIZE", 2), 1, 2,
    ),
    "dispatch by a dict": Edit(
        kernel("OPS['a']()", "def one():\n    return 1\nOPS = {'a': one}"),
        lambda m: m.OPS.update(a=lambda: 2), 1, 2,
    ),
    "name of a class that is made in the kernel": Edit(
        kernel("f()", "SIZE = 1\ndef f():\n    class Local:\n        size = SIZE\n    return Local.size"),
        assign("SIZE", 2), 1, 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_seen(name: str, tmp_path: Path) -> None:
    edit = EDITS[name]
    module = load(tmp_path, edit.source)
    call = Remembering(module.kernel)
    assert (call(), call(), call()) == ((edit.before,),) * 3
    assert call.doubt == ""
    assert call.traces == 1, "without an edit the kernel is not traced again"
    edit.change(module)
    assert call() == (edit.after,)
    assert call() == (edit.after,)
    assert call.traces == 2, "an edit makes it be traced again, once"


@pytest.mark.parametrize(
    "read",
    [
        "import {c}\n" + kernel("{c}.SIZE"),
        "import {c} as c\n" + kernel("helper()", "def helper():\n    return c.SIZE"),
        "import {c} as c\n" + kernel("helper(c)", "def helper(m):\n    return m.SIZE"),
        "import {c} as c\n" + kernel("helper()", "def helper():\n    m = c\n    return m.SIZE"),
        "import {c} as c\nMODULES = [c]\n" + kernel("MODULES[0].SIZE"),
        "import {c} as c\n" + kernel("getattr(c, 'SI' + 'ZE')"),
        "import {c} as c\n" + kernel("vars(c)['SIZE']"),
        kernel("helper()", "def helper():\n    import {c}\n    return {c}.SIZE"),
        kernel("helper()", "def helper():\n    from {c} import SIZE\n    return SIZE"),
        "import {c}\n" + kernel("{c}.get()"),
    ],
)
def test_attributes_of_modules(read: str, tmp_path: Path) -> None:
    config = load(tmp_path, "SIZE = 1\nOTHER = 1\ndef get():\n    return SIZE\n")
    module = load(tmp_path, read.replace("{c}", config.__name__))
    call = Remembering(module.kernel)
    assert (call(), call(), call.traces, call.doubt) == ((1.0,), (1.0,), 1, "")
    config.SIZE = 2
    assert (call(), call(), call.traces) == ((2.0,), (2.0,), 2)


@pytest.mark.parametrize(
    "read",
    [
        "import {c}\n" + kernel("{c}.SIZE"),
        "import {c} as c\n" + kernel("helper(c)", "def helper(m):\n    return m.SIZE"),
        kernel("helper()", "def helper():\n    from {c} import SIZE\n    return SIZE"),
    ],
)
def test_attributes_that_a_module_computes(read: str, tmp_path: Path) -> None:
    computes = (
        "def __getattr__(name):\n    if name == 'SIZE':\n        return STATE[0]\n    raise AttributeError(name)\n"
    )
    config = load(tmp_path, "STATE = [1]\n" + computes)
    call = Remembering(load(tmp_path, read.replace("{c}", config.__name__)).kernel)
    assert (call(), call(), call.traces, call.doubt) == ((1.0,), (1.0,), 1, "")
    config.STATE[0] = 2
    assert (call(), call(), call.traces) == ((2.0,), (2.0,), 2)
    config.__getattr__ = lambda name: 3
    assert (call(), call(), call.traces) == ((3.0,), (3.0,), 3)


def test_a_name_that_is_not_read_does_not_matter(tmp_path: Path) -> None:
    config = load(tmp_path, "SIZE = 1\nOTHER = 1\n")
    module = load(tmp_path, f"import {config.__name__} as config\nUNUSED = 1\n" + kernel("config.SIZE"))
    call = Remembering(module.kernel)
    call()
    config.OTHER, module.UNUSED = 2, 2
    assert (call(), call.traces) == ((1.0,), 1)


def test_an_equal_value_in_another_object_does_not_matter(tmp_path: Path) -> None:
    module = load(tmp_path, kernel("SIZES[0] + BIG * 0", "SIZES = [1, 2]\nBIG = 10**9"))
    call = Remembering(module.kernel)
    call()
    module.SIZES, module.BIG = [1, 2], int("1000000000")
    assert (call(), call.traces) == ((1.0,), 1)


def test_a_module_that_is_loaded_again_from_an_edited_file(tmp_path: Path) -> None:
    helper = load(tmp_path, "def size():\n    return 1\n", "remembered_helper")
    module = load(tmp_path, "import remembered_helper as helper\n" + kernel("helper.size()"))
    call = Remembering(module.kernel)
    assert (call(), call(), call.traces) == ((1.0,), (1.0,), 1)
    (tmp_path / "remembered_helper.py").write_text("def size():\n    return 2\n")
    exec(compile((tmp_path / "remembered_helper.py").read_text(), "remembered_helper.py", "exec"), vars(helper))
    assert (call(), call(), call.traces) == ((2.0,), (2.0,), 2)


def test_a_patched_function_of_the_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nki.language as nl

    module = load(tmp_path, kernel("helper()", "def helper():\n    return 1 if nl.ds(0, 1) else 0"))
    call = Remembering(module.kernel)
    assert (call(), call(), call.traces) == ((1.0,), (1.0,), 1)
    monkeypatch.setattr(nl, "ds", lambda start, size: None)
    assert (call(), call.traces) == ((0.0,), 2)


class Shape(enum.Enum):
    SMALL = 1
    LARGE = 2


def test_objects_in_arguments_count_by_what_is_behind_them(tmp_path: Path) -> None:
    module = load(
        tmp_path,
        "class Plain:\n    extra = 0\n    def __init__(self, size):\n        self.size = size\n"
        "    def __eq__(self, other):\n        return True\n    def __hash__(self):\n        return 0\n"
        "def kernel(x):\n    return fill(x.size + x.extra)\ndef called(f):\n    return fill(f())\n",
    )
    call = Remembering(module.kernel)
    one, two = module.Plain(1), module.Plain(2)
    assert (call(one), call(two), call.traces) == ((1.0,), (2.0,), 2)
    two.size = 3
    assert (call(two), call.traces) == ((3.0,), 3)
    module.Plain.extra = 1
    assert (call(two), call(module.Plain(3)), call.traces) == ((4.0,), (4.0,), 4)
    called = Remembering(module.called)
    assert [called(lambda: 1), called(lambda: 2)] == [(1.0,), (2.0,)]
