"""`nki disasm` and `nki inspect`."""

from __future__ import annotations

from pathlib import Path

import pytest

from nki.ir.build import build
from nki.ir.text import save as save_ir
from nki.store.artifact.container import save
from nki.store.artifact.validate import unpack
from nki.testing.assembly import parse
from tests.asm.compiled import compiled, summed
from tests.store.artifact.cases import originals
from tests.tools.running import nki, nki_json


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "kernel.neff"
    save(path, originals()[0])
    return str(path)


def test_assembly_reads_back(file: str) -> None:
    assert parse(nki("disasm", file).stdout) == unpack(originals()[0]).streams[0]


def test_one_queue(file: str) -> None:
    lines = nki("disasm", file, "--queue", "dma1").stdout.splitlines()
    assert lines[0] == "core 0 of 1, queue dma1:"
    assert [line.split()[:3] for line in lines[2:4]] == [["pass", "2"], ["5", "dma_copy", "on"]]
    assert nki("disasm", file, "--queue", "gpsimd").stdout == "core 0 of 1, queue gpsimd: idle\n"
    assert nki_json("disasm", file, "--queue", "gpu", code=2)["error"]["code"] == "disasm.queue"


def test_json(file: str) -> None:
    (core,) = nki_json("disasm", file, "--queue", "vector")["cores"]
    assert list(core["queues"]) == ["vector"]
    kinds = [entry["kind"] for entry in core["queues"]["vector"]]
    assert kinds == ["begin", "begin", "instruction", "end", "end", "pass"]
    instruction = core["queues"]["vector"][2]
    assert instruction["waits"] == [{"queue": "dma0", "signals": 1}]
    assert instruction["location"][0]["file"].endswith("kernels.py")


def test_ir_of_a_compiled_program(tmp_path: Path) -> None:
    path = tmp_path / "kernel.mlir"
    save_ir(build([compiled(summed())]), path)
    assert "tensor_scalar on vector" in nki("disasm", str(path)).stdout
    save_ir(build([summed()]), path)
    assert nki_json("disasm", str(path), code=1)["error"]["code"] == "asm.unplaced"


def test_inspect(file: str) -> None:
    text = nki("inspect", file).stdout
    assert "arguments    a: float32[128, 64]" in text
    assert "options      schedule=True, level=2" in text
    told = nki_json("inspect", file)
    assert told["streams"][0]["vector"] == {"tensor_scalar": 1}
    assert told["hash"] == originals()[0][172:204].hex()
    assert told["members"]["core0/vector.bin"] > 20


def test_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "kernel.neff"
    path.write_bytes(originals()[0][:-1])
    for verb in ("inspect", "disasm"):
        assert nki_json(verb, str(path), code=1)["error"]["code"] == "artifact.size"
    assert nki_json("inspect", str(tmp_path / "no.neff"), code=1)["error"]["code"] == "artifact.file"
