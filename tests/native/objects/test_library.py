"""Native functions by name: compiled once, found by later processes without a compiler, never from damaged files."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from nki.core.errors import ExecutionError, UsageError
from nki.native import cpu_features
from nki.native.objects import executable_memory
from nki.native.objects import library as module
from nki.native.objects.elf import ElfError
from nki.native.objects.library import Library, library, library_reason
from nki.native.objects.object_cache import Objects
from nki.options import from_environment
from tests.native.objects.jit_cases import answer, call, check_scale_add, scale_add

LIMIT = 1 << 30
ROOT = Path(__file__).resolve().parents[3]
needs_loader = pytest.mark.skipif(bool(executable_memory.refusal()), reason=executable_memory.refusal())


def never() -> str:
    raise AssertionError("the text is not needed")


def on_disk(path: Path) -> Library:
    """A library as a new process would have it."""
    return Library(Objects(path, LIMIT), True)


PROGRAM = textwrap.dedent(
    """
    import json, sys
    from nki.native.objects.library import library
    from nki.options import Options
    from tests.native.objects.jit_cases import call, check_scale_add, scale_add, answer

    lib = library(Options())
    had = lib.has("scaled")
    check_scale_add(lib.address("scaled", lambda: scale_add("scaled")))
    two = lib.addresses("pair", ("p", "q"), lambda: answer("p", 3) + answer("q", 4))
    assert (call(two["p"]), call(two["q"])) == (3, 4)
    print(json.dumps({"had": had, "compiler": "torch_mlir" in sys.modules}))
    """
)


def start(path: Path, **environment: str) -> subprocess.Popen[str]:
    env = {**os.environ, "NKI_CACHE": "1", "NKI_CACHE_DIR": str(path), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-W", "error", "-c", PROGRAM]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env={**env, **environment}, cwd=ROOT, stdout=pipe, stderr=pipe, text=True)


def finished(process: subprocess.Popen[str]) -> dict[str, bool]:
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0 and not error, error
    found: dict[str, bool] = json.loads(out)
    return found


@needs_loader
def test_later_processes_do_not_load_the_compiler(tmp_path: Path) -> None:
    assert finished(start(tmp_path)) == {"had": False, "compiler": True}
    assert finished(start(tmp_path)) == {"had": True, "compiler": False}
    assert finished(start(tmp_path, NKI_CACHE="0")) == {"had": False, "compiler": True}


@needs_loader
def test_processes_may_start_at_once(tmp_path: Path) -> None:
    processes = [start(tmp_path) for _ in range(3)]
    for process in processes:
        finished(process)
    assert finished(start(tmp_path)) == {"had": True, "compiler": False}


@needs_loader
def test_functions_are_compiled_once(tmp_path: Path) -> None:
    first = on_disk(tmp_path)
    assert not first.has("f")
    address = first.address("f", lambda: scale_add("f"))
    assert first.has("f") and first.address("f", never) == address
    assert first.addresses("f", ("f",), never) == {"f": address}
    later = on_disk(tmp_path)
    assert later.has("f")
    check_scale_add(later.address("f", never))


def test_threads_compile_once_and_get_the_same() -> None:
    lib, made, found = Library(None, not executable_memory.refusal()), [], []
    ready = threading.Barrier(6)

    def text() -> str:
        made.append(1)
        return answer("f", 77)

    def ask() -> None:
        ready.wait()
        found.append(lib.address("f", text))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1 and len(found) == 6 and len(set(found)) == 1
    assert call(found[0]) == 77


@needs_loader
def test_damaged_objects_are_made_anew(tmp_path: Path) -> None:
    on_disk(tmp_path).address("f", lambda: scale_add("f"))
    (file,) = Objects(tmp_path, LIMIT).directory.glob("*.nkic")
    whole, draw = file.read_bytes(), random.Random(3)
    for _ in range(10):
        changed = bytearray(whole)
        changed[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        file.write_bytes(changed)
        again = on_disk(tmp_path)
        check_scale_add(again.address("f", lambda: scale_add("f")))
        assert file.read_bytes() == whole
    check_scale_add(on_disk(tmp_path).address("f", never))


@needs_loader
@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"no object at all" * 10])
def test_intact_files_that_are_no_objects_are_made_anew(data: bytes, tmp_path: Path) -> None:
    objects = Objects(tmp_path, LIMIT)
    objects.put(module.object_key("f"), data)
    assert call(Library(objects, True).address("f", lambda: answer("f", 5))) == 5
    assert call(on_disk(tmp_path).address("f", never)) == 5


@needs_loader
def test_an_object_without_the_function_is_made_anew(tmp_path: Path) -> None:
    on_disk(tmp_path).address("f", lambda: answer("f", 5))
    both = on_disk(tmp_path).addresses("f", ("f", "g"), lambda: answer("f", 6) + answer("g", 7))
    assert [call(both[name]) for name in ("f", "g")] == [6, 7]


def test_a_text_without_the_function_is_a_mistake() -> None:
    with pytest.raises(ExecutionError, match="does not define g") as caught:
        Library(None, not executable_memory.refusal()).addresses("f", ("f", "g"), lambda: answer("f", 6))
    assert caught.value.code == "native.compile"


def test_a_wrong_text_is_a_mistake() -> None:
    with pytest.raises(ExecutionError, match="parse") as caught:
        Library(None, not executable_memory.refusal()).address("f", lambda: "func.func @f(")
    assert caught.value.code == "native.compile" and "NKI_NATIVE=0" in caught.value.fix


def test_without_the_loader_functions_are_compiled_in_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(data: bytes) -> dict[str, int]:
        raise AssertionError("the loader is off")

    monkeypatch.setattr(executable_memory, "load", refused)
    lib = Library(Objects(tmp_path, LIMIT), False)
    check_scale_add(lib.address("f", lambda: scale_add("f")))
    assert lib.has("f") and not lib.has("g")
    assert not list(tmp_path.rglob("*.nkic")), "what cannot be loaded is not kept"


@pytest.mark.parametrize("when", ["cold", "warm"])
@needs_loader
def test_memory_refused_later_compiles_in_the_process(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if when == "warm":
        on_disk(tmp_path).address("f", lambda: answer("f", 1))

    def refused(address: int, size: int, protection: int) -> None:
        raise PermissionError(13, "refused")

    monkeypatch.setattr(executable_memory, "_protect", refused)
    assert call(on_disk(tmp_path).address("f", lambda: answer("f", 2))) == 2


def test_an_object_that_asks_for_more_than_it_may_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is not compiled in the process instead, where it might get it."""

    def wants(data: bytes) -> dict[str, int]:
        raise ElfError("'expf' is not among the external functions")

    monkeypatch.setattr(executable_memory, "load", wants)
    with pytest.raises(ExecutionError, match="expf"):
        Library(None, True).address("f", lambda: answer("f", 2))


class TestSwitches:
    """What the environment says."""

    @pytest.fixture(autouse=True)
    def fresh(self) -> None:
        module._lack.cache_clear()

    def test_there_is_a_library(self) -> None:
        assert library_reason(from_environment()) == "" and isinstance(library(from_environment()), Library)
        assert library(from_environment()) is library(from_environment())

    def test_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NKI_NATIVE", "0")
        assert (
            library(from_environment()) is None and library_reason(from_environment()) == "NKI_NATIVE=0 switches it off"
        )

    def test_off_and_required(self, monkeypatch: pytest.MonkeyPatch) -> None:
        options = from_environment({"NKI_NATIVE": "0", "NKI_REQUIRE_NATIVE": "1"})
        with pytest.raises(UsageError, match="NKI_NATIVE=0") as caught:
            library(options)
        assert caught.value.code == "native.unavailable"

    def test_no_compiler(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "find_spec", lambda name: None)
        assert library(from_environment()) is None and "torch-mlir" in library_reason(from_environment())
        with pytest.raises(UsageError, match=r"torch-mlir.* is not installed"):
            library(from_environment({"NKI_REQUIRE_NATIVE": "1"}))

    def test_an_old_processor(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module.platform, "machine", lambda: "x86_64")
        monkeypatch.setattr(cpu_features, "features", lambda: frozenset({"avx", "f16c"}))
        assert (
            library(from_environment()) is None
            and library_reason(from_environment()) == "the processor does not have avx2, fma"
        )

    def test_asking_does_not_load_the_compiler(self) -> None:
        asks = "import sys, nki.native.objects.library as n, nki.options as o; n.library(o.Options())"
        program = f"{asks}; sys.exit('torch_mlir' in sys.modules)"
        subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})

    def test_the_cache_may_be_off(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("NKI_CACHE", "0")
        monkeypatch.setenv("NKI_CACHE_DIR", str(tmp_path))
        lib = library(from_environment())
        assert lib is not None and call(lib.address("off", lambda: answer("off", 8))) == 8
        assert not list(tmp_path.iterdir())


def test_the_package_is_there_that_the_search_looks_for() -> None:
    """So that a renamed package is not taken for one that is not installed."""
    assert importlib.util.find_spec(module._MLIR) is not None
