"""The language check: what the parser front end refuses, and the command that shows it all."""

from __future__ import annotations

from pathlib import Path

import pytest

from nki.frontend.check.language_check import check_function
from tests.frontend.check.checking import Load, expect, marked
from tests.tools.running import nki as command
from tests.tools.running import nki_json

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
