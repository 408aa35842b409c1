"""Arguments that old kernels are traced with: from calls in the file, from other files, and made up."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from nki.driver.prepare import chosen_target
from nki.tools.migrate.whole import migrate_file
from nki.tools.options import options_of
from tests.tools.migrate.files import IMPORTS, rewritten


def test_arguments_are_made_up_where_the_file_has_no_call(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def kernel(a):
            out = nl.ndarray((3, 96, 640), dtype=a.dtype, buffer=nl.shared_hbm)
            for i in nl.affine_range(3):
                nl.store(out[i], nl.load(a[i, nl.arange(96)[:, None], nl.arange(640)[None, :]]))
            return out
        """,
    )
    assert whole.calls["kernel"].kwargs["a"].shape >= (3, 96, 640)
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_a_reshape_says_how_many_elements_a_made_up_array_has(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def kernel(a):
            out = nl.ndarray((3, 96, 40), dtype=a.dtype, buffer=nl.shared_hbm)
            blocks = a.reshape((3, 96, 40))
            for i in nl.affine_range(3):
                nl.store(out[i], nl.load(blocks[i]))
            return out
        """,
    )
    assert whole.calls["kernel"].kwargs["a"].size == 3 * 96 * 40
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_a_script_has_the_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # pytest looks through every folder between this one and that of the script
    path, script = tmp_path / "kernels_of_a_script.py", tmp_path / "test_calls.py"
    path.write_text(
        IMPORTS
        + textwrap.dedent("""
        @nki.jit
        def inner(a):
            return nl.exp(a)


        @nki.jit
        def kernel(a, count):
            assert count == 7
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            nl.store(out, inner(nl.load(a)))
            return out
        """)
    )
    script.write_text(
        "import numpy as np\nimport pytest\nfrom kernels_of_a_script import kernel\n\n\n"
        "@pytest.mark.parametrize('size', [128, 32, 64])\n"
        "def test(size):\n    assert kernel(np.ones((size, 64), np.float32), 7) is not None\n"
    )
    options = options_of()
    whole = migrate_file(path, {}, chosen_target("trn2", options.target, ""), options, script)
    assert whole.calls["kernel"].args[0].shape == (32, 64)
    assert whole.proofs.keys() == {"kernel"}
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_what_one_call_does_not_reach_is_reached_with_other_arguments(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def kernel(a, b=None, double=False):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            tile = nl.load(a)
            if b is not None:
                tile = tile + nl.load(b)
            if double:
                tile = tile * 2
            nl.store(out, value=tile)
            return out
        """,
        "a=64x32",
    )
    assert not whole.text.left
    assert "        tile = nl.add(tile, nl.load(b))" in whole.text.new
    assert "        tile = nl.multiply(tile, 2)" in whole.text.new
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_asserts_and_docstrings_say_which_shapes_are_made_up(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        @nki.jit
        def kernel(a, b, c):
            \"\"\"A sum.

            a: shape (rows, columns, 3)
            \"\"\"
            rows, columns, _ = a.shape
            assert rows == nl.tile_size.pmax // 2 and columns % 24 == 0
            assert a.shape[2] == 3
            assert b.shape == c.shape
            assert tuple(b.shape) == (rows, columns), "as a"
            out = nl.ndarray((rows, columns), dtype=a.dtype, buffer=nl.shared_hbm)
            nl.store(out, value=nl.load(b) + nl.load(c))
            return out
        """,
    )
    shapes = {name: value.shape for name, value in whole.calls["kernel"].kwargs.items()}
    assert shapes["a"][0] == 64 and shapes["a"][1] % 24 == 0 and shapes["a"][2] == 3
    assert shapes["b"] == shapes["c"] == shapes["a"][:2]
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_other_settings_and_the_arrays_that_they_need_reach_more_lines(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        from dataclasses import dataclass


        @dataclass(frozen=True)
        class Config:
            negate: bool = False


        @nki.jit
        def kernel(a, config, noise=0.0, seed=None):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            tile = nl.load(a)
            if config.negate:
                tile = tile * -1
            if noise > 0:
                assert tuple(seed.shape) == (64, 1)
                first = nl.load(seed)
                tile = tile + first
            nl.store(out, value=tile)
            return out


        kernel(np.ones((64, 32), np.float32), Config())
        """,
    )
    assert not whole.text.left
    assert "        tile = nl.multiply(tile, -1)" in whole.text.new
    assert "        tile = nl.add(tile, first)" in whole.text.new
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]


def test_what_cannot_be_executed_here_is_told_and_kernels_are_migrated(tmp_path: Path) -> None:
    whole = rewritten(
        tmp_path,
        """
        from no_such_package import something


        @nki.jit
        def kernel(a):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            nl.store(out, value=nl.load(a))
            return out


        something(kernel)
        SIZE = 3
        open("never", "w")
        """,
        "a=64x32",
    )
    assert [(failed.line, failed.reason.partition(":")[0]) for failed in whole.failed] == [
        (7, "ModuleNotFoundError"),
        (17, "NameError"),
    ]
    assert not Path("never").exists()
    assert whole.proofs["kernel"].equal, whole.proofs["kernel"]
