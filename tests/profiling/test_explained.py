"""Advice is explained, says what is the cause, and does not lead in circles."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.profiling import build, summary
from nki.tools.codes import advice_entries
from tests.profiling.advice.test_ranking import CASES
from tests.profiling.support import advice, array, hbm, loaded, loaded_part, profiled, psum, rules, sbuf, stored
from tests.together import together
from tests.tools.running import nki as command

RULES = sorted(rule.__name__.replace("_", "-") for rule in build.RULES)


def test_every_rule_is_explained() -> None:
    assert sorted(advice_entries()) == RULES


@together("name", RULES)
def test_an_explanation_is_a_title_and_some_sentences(name: str) -> None:
    found = advice_entries()[name]
    shown = command("explain", name).stdout
    assert shown.startswith(f"{name}: {found.title}\n")
    assert found.text in shown
    assert 3 <= len(re.findall(r"[.](?= |$)", found.text)) <= 6
    for example in (found.wrong, found.right):
        compile(example, name, "exec")


def test_a_rule_is_found_by_a_word_that_is_close() -> None:
    assert "transfer-starts" in command("explain", "transfer-start", code=2).stderr
    assert "no-overlap" in command("explain", "advice.no-overlap", code=2).stderr


def test_the_summary_says_how_to_learn_more() -> None:
    kernel, arguments = CASES["short-instructions"].bad
    found = profiled(kernel, *arguments)
    assert f"nki explain {found.advice[0]['rule']}" in found.summary()


def _layer(again: bool, tiles: int = 16) -> Callable[..., Any]:
    """Products of tiles of one tensor with another, which is loaded for each tile or once."""

    def kernel(x: Any, w: Any) -> Any:
        out = hbm((128 * tiles, w.shape[1]))
        kept = loaded(w)
        for m in range(tiles):
            weights = loaded_part(w) if again else kept
            sums = psum((128, w.shape[1]))
            nisa.nc_matmul(dst=sums, stationary=loaded(x[:, nl.ds(m * 128, 128)]), moving=weights)
            tile = sbuf((128, w.shape[1]))
            nisa.tensor_copy(dst=tile, src=sums)
            nisa.dma_copy(dst=out[nl.ds(m * 128, 128)], src=tile)
        return out

    return kernel


LAYER = (array(128, 2048), array(128, 512))


def test_bytes_that_are_loaded_again_are_the_cause() -> None:
    """With numbers: how often which tensor, how many bytes, what keeping it takes and saves."""
    bad, good = profiled(_layer(again=True), *LAYER), profiled(_layer(again=False), *LAYER)
    assert bad.advice[0]["rule"] == "repeated-loads"
    assert not {"transfer-starts", "no-overlap"} & rules(bad), "larger transfers of the same bytes would not help"
    found = advice(bad, "repeated-loads")
    assert "w (256 KiB) 17 times, 4 MiB more than needed" in found["message"]
    assert "starting 16 transfers" in found["message"]
    assert "load w once, before the loop, and keep it in SBUF: it takes 2 KiB" in found["fix"]
    gained = bad.makespan_ns - good.makespan_ns
    assert 0.5 * found["expected_ns"] <= gained <= found["saving_ns"]
    assert "repeated-loads" not in rules(good)


def test_the_other_advice_comes_when_the_cause_is_gone() -> None:
    assert "transfer-starts" in rules(profiled(_layer(again=False), *LAYER))


def test_a_tensor_that_does_not_fit_is_not_to_be_kept() -> None:
    def kernel(a: Any) -> Any:
        total = sbuf((128, 512))
        nisa.memset(dst=total, value=0.0)
        for _ in range(2):
            for start in range(0, a.shape[1], 8192):
                nisa.tensor_tensor(dst=total, data1=total, data2=loaded(a[:, nl.ds(start, 8192)])[:, :512], op=nl.add)
        return stored(total)

    assert "change the order of the loops" in advice(profiled(kernel, array(128, 49152)), "repeated-loads")["fix"]


@pytest.mark.parametrize("written", [True, False])
def test_what_was_written_in_between_is_loaded_for_a_reason(written: bool) -> None:
    def kernel(a: Any) -> Any:
        scratch, out = hbm(a.shape), hbm(a.shape)
        nisa.dma_copy(dst=scratch, src=loaded(a))
        for number in range(6):
            tile = loaded(scratch)
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(number))
            nisa.dma_copy(dst=scratch if written else out, src=tile)
        if written:
            nisa.dma_copy(dst=out, src=loaded(scratch))
        return out

    assert ("repeated-loads" in rules(profiled(kernel, array(128, 4096)))) is not written


def _pieces(columns: int) -> Callable[..., Any]:
    """What is loaded, computed and stored in pieces of so many columns."""

    def kernel(a: Any) -> Any:
        out = hbm(a.shape)
        for start in range(0, a.shape[1], columns):
            x = loaded(a[:, nl.ds(start, columns)])
            nisa.activation(dst=x, op=nl.exp, data=x)
            nisa.dma_copy(dst=out[:, nl.ds(start, columns)], src=x)
        return out

    return kernel


def _size(fix: str) -> float:
    """Bytes that a fix recommends."""
    number, unit = re.search(r"([\d.]+) (KiB|MiB) or more", fix).groups()  # type: ignore[union-attr]
    return float(number) * {"KiB": 2**10, "MiB": 2**20}[unit]


def test_advice_on_transfers_does_not_lead_in_circles() -> None:
    """Neither from pieces that are too small nor from one that is too large, if the advice is followed."""
    for columns in (32, 8192):
        seen = []
        while True:
            found = [each for each in profiled(_pieces(columns), array(128, 8192)).advice if " or more" in each["fix"]]
            if not found:
                break
            assert found[0]["rule"] not in seen, f"{seen}, and {found[0]['rule']} again at {columns} columns"
            seen.append(found[0]["rule"])
            columns = int(2 ** np.ceil(np.log2(_size(found[0]["fix"]) / 512)))
        assert seen


def test_the_words_of_short_instructions() -> None:
    def kernel(a: Any) -> Any:
        x = loaded(a)
        for column in range(70):
            nisa.tensor_scalar(dst=x[:, column : column + 1], data=x[:, column : column + 1], op0=nl.add, operand0=1.0)
        return stored(x)

    found = advice(profiled(kernel, array(128, 128)), "short-instructions")
    assert "in 70 instructions it works on 1 element of each partition on average" in found["message"]
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "data=x[:, column :" in text)
    assert found["message"].endswith(f"; all of it in line {line} of test_explained.py")


def _scaled_rows(loads: int) -> Callable[..., Any]:
    """Tiles times one row, which each of so many transfers repeats over the partitions."""

    def kernel(a: Any, row: Any) -> Any:
        x, kept = loaded(a), loaded(row.broadcast(0, 128))
        for number in range(8):
            factor = loaded_part(row.broadcast(0, 128)) if 0 < number < loads else kept
            nisa.tensor_tensor(dst=x, data1=x, data2=factor[:, :1000], op=nl.multiply)
        return stored(x)

    return kernel


def _windows(a: Any) -> Any:
    """One transfer in which 64 rows of 128 columns overlap."""
    return stored(loaded(a.ap([[1, 64], [1, 128]])))


ROWS = (array(128, 1000), array(1, 4000))


def test_one_transfer_that_repeats_its_source_is_no_repeated_load() -> None:
    assert "repeated-loads" not in rules(profiled(_scaled_rows(1), *ROWS))
    assert "repeated-loads" not in rules(profiled(_windows, array(64, 128)))


def test_a_row_that_is_repeated_counts_its_loads_and_keeps_its_tile() -> None:
    found = advice(profiled(_scaled_rows(4), *ROWS), "repeated-loads")
    assert "row (15.6 KiB) 4 times, 5.86 MiB more than needed" in found["message"]
    assert "it takes 15.6 KiB of the 224 KiB in each partition" in found["fix"]


def _tiles(early: bool) -> Callable[..., Any]:
    """Two tiles; with one buffer the second load waits for the first tile's store, with two it is there before."""

    def kernel(a: Any) -> Any:
        out = hbm(a.shape)
        x, y = sbuf((128, 512)), sbuf((128, 512))
        for number in range(2):
            tile = y if early and number else x
            nisa.dma_copy(dst=tile, src=a[number])
            for _ in range(4):
                nisa.activation(dst=tile, op=nl.exp, data=tile)
            nisa.dma_copy(dst=out[number], src=tile)
        return out

    return kernel


def test_overlap_that_is_there_is_not_asked_for() -> None:
    """What is left of transfers on the critical path is the first load and the last store."""
    bad, good = (profiled(_tiles(early), array(2, 128, 512)) for early in (False, True))
    assert "no-overlap" not in rules(good)
    gained = bad.makespan_ns - good.makespan_ns
    found = advice(bad, "no-overlap")
    assert 0.5 * found["expected_ns"] <= gained <= found["saving_ns"]


def test_work_beside_the_critical_path_is_no_saving() -> None:
    """Matmuls of float32 while Vector is what the program waits for."""

    def kernel(a: Any, w: Any) -> Any:
        x, y, total = loaded(a), loaded(w), psum((128, 512))
        for _ in range(40):
            nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=0.5)
        for _ in range(4):
            nisa.nc_matmul(dst=total, stationary=y[:, :128], moving=y, accumulate=True)
        out = hbm((2, 128, 512))
        copied = sbuf((128, 512))
        nisa.activation(dst=copied, op=nl.copy, data=total)
        nisa.dma_copy(dst=out[0], src=copied)
        nisa.dma_copy(dst=out[1], src=x[:, :512])
        return out

    assert "float32-matmul" not in rules(profiled(kernel, array(128, 1024), array(128, 512)))


def test_the_price_of_bfloat16_is_named() -> None:
    kernel, arguments = CASES["float32-matmul"].bad
    fix = advice(profiled(kernel, *arguments), "float32-matmul")["fix"]
    assert "8 bits of mantissa, an error of up to 1 in 256" in fix


def _squares(right: bool) -> Callable[..., Any]:
    """What the explanation of two-inputs calls wrong and right: tiles times a factor, and sums of squares."""
    example = getattr(advice_entries()["two-inputs"], "right" if right else "wrong")

    def kernel(a: Any, factor: Any) -> Any:
        x, scale = loaded(a), loaded(factor)
        names = {"nl": nl, "nisa": nisa, "x": x, "factor": scale, "square": sbuf(a.shape), "total": sbuf((128, 1))}
        for _ in range(8):
            exec(compile(example, "two-inputs", "exec"), names)
        out = hbm((128, a.shape[1] + 1))
        nisa.dma_copy(dst=out[:, : a.shape[1]], src=x)
        nisa.dma_copy(dst=out[:, a.shape[1] :], src=names["total"])
        return out

    return kernel


def test_the_examples_of_two_inputs_compute_the_same_and_the_right_one_is_faster() -> None:
    random = np.random.default_rng(0)
    a, factor = (random.uniform(0.9, 1.1, (128, 512)).astype(np.float32) for _ in range(2))
    wrong, right = (nki.jit(_squares(each)) for each in (False, True))
    np.testing.assert_allclose(wrong(a, factor), right(a, factor), rtol=1e-5)
    assert profiled(_squares(True), a, factor).makespan_ns < profiled(_squares(False), a, factor).makespan_ns


def _columns(a: Any) -> Any:
    """Columns that are loaded one by one, four times each."""
    total = sbuf((128, 128))
    nisa.memset(dst=total, value=0.0)
    for _ in range(4):
        for number in range(4):
            x = loaded_part(a[number].ap([[1, 128], [128, 128]]))
            nisa.tensor_tensor(dst=total, data1=total, data2=x, op=nl.add)
    return stored(total)


def test_a_cause_comes_before_its_symptom() -> None:
    """Contiguous pieces would save more than one load instead of four, but then three of four would be for nothing."""
    found = profiled(_columns, array(4, 128, 128)).advice
    first, second = found[:2]
    assert (first["rule"], second["rule"]) == ("repeated-loads", "small-descriptors")
    assert second["expected_ns"] > first["expected_ns"]


def test_lines_are_in_the_order_of_what_they_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")  # where two inputs in SBUF take two cycles

    def kernel(a: Any) -> Any:
        x, y = loaded(a), sbuf(a.shape)
        for start in range(0, 512, 16):
            few, more = nl.ds(start, 16), nl.ds(512 + start, 16)
            nisa.tensor_scalar(dst=y[:, few], data=x[:, few], op0=nl.add, operand0=1.0)
            for _ in range(3):
                nisa.tensor_scalar(dst=y[:, more], data=x[:, more], op0=nl.add, operand0=2.0)
                x, y = y, x
        return stored(y)

    profile = profiled(kernel, array(128, 1024))
    found = advice(profile, "short-instructions")
    spent = dict.fromkeys(found["sources"], 0.0)
    for row in profile["instructions"].rows():
        if row["opcode"] == "nisa.tensor_scalar":
            spent[row["source"]] += row["cost_ns"]
    assert len(spent) == 2
    assert list(spent.values()) == sorted(spent.values(), reverse=True)
    costs = [profile["instructions"]["cost_ns"][number] for number in found["instructions"]]
    assert costs == sorted(costs, reverse=True)


def test_a_line_in_a_function_is_named_with_where_it_is_called() -> None:
    message = advice(profiled(_columns, array(4, 128, 128)), "repeated-loads")["message"]
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "[128, 128]]))" in text)
    assert message.endswith(f" of support.py, called in line {line} of test_explained.py")


@pytest.mark.parametrize("off", [0.0, 0.99])
def test_what_saves_less_than_the_model_is_off_is_said_to(monkeypatch: pytest.MonkeyPatch, off: float) -> None:
    for module in (build, summary):
        monkeypatch.setattr(module, "excess", lambda *_: off)
    found = profiled(_columns, array(4, 128, 128))
    assert all(each["within_error"] is (off > 0.0) for each in found.advice)
    assert ("less than what predictions for such kernels may be too long by (99%)" in found.summary()) is (off > 0.0)


def test_the_longest_wait_of_an_engine_comes_first() -> None:
    kernel, arguments = CASES["no-overlap"].bad
    shown = profiled(kernel, *arguments).summary().partition("longest waits of engines")[2].partition("advice")[0]
    waited = [(float(ns), queue) for ns, queue in re.findall(r"(?m)^ *([\d.,]+) µs +(\w+)", shown)]
    assert waited
    assert waited == sorted(waited, key=lambda item: -item[0])
    assert not any(queue.startswith("dma") for _, queue in waited)
