"""The names of the published package: its example as it is written, and what it does beside the real one."""

import sys
from pathlib import Path

import torch

from tests.packaging.building import REPOSITORY, run

SOURCE = REPOSITORY / "src"


def test_the_published_example() -> None:
    """Its structure; the body of the kernel is left open there."""
    import nki.isa as nisa
    import nki.language as nl
    from torch_neuronx import nki, nki_op

    @nki.jit
    def my_kernel(in_ptr0, out_ptr):
        tile = nl.ndarray((128, 1), dtype=in_ptr0.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=in_ptr0.reshape((128, 1)))
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out_ptr.reshape((128, 1)), src=tile)

    @nki_op("mylib::my_op", mutates_args={})
    def my_op(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        my_kernel(x, out)
        return out

    x = torch.randn(128, device="neuron")
    y = my_op(x)
    assert y.device.type == "neuron"
    assert torch.equal(y.cpu(), x.cpu() * 2)
    torch.compiler.reset()
    for backend in ("aot_eager", "neuron"):
        compiled = torch.compile(my_op, fullgraph=True, backend=backend)
        assert torch.equal(compiled(x).cpu(), x.cpu() * 2)


def test_names() -> None:
    import nki.interop.torch as interop
    import torch_neuronx
    from torch_neuronx.nki_hop import nki_op, wrap_nki

    assert torch_neuronx.nki_op is nki_op is interop.nki_op
    assert torch_neuronx.wrap_nki is wrap_nki is interop.wrap_nki


def test_it_does_not_hide_the_real_package(tmp_path: Path) -> None:
    information = tmp_path / "torch_neuronx-2.14.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-neuronx\nVersion: 2.14.0\n")
    code = f"""
import sys
sys.path[:0] = [{str(tmp_path)!r}, {str(SOURCE)!r}]
try:
    import torch_neuronx
except ImportError as error:
    print(error)
"""
    assert "torch-neuronx 2.14.0 is installed and hidden by" in run(sys.executable, "-c", code, cwd=tmp_path)


def test_importing_nki_imports_no_torch() -> None:
    code = "import sys, nki, nki.interop; print('torch' in sys.modules)"
    assert run(sys.executable, "-c", code, cwd=REPOSITORY).strip() == "False"
