"""Coefficients of collectives come back from times that were made with others."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import product
from types import MappingProxyType

import numpy as np
import pytest

from nki.target.load import load_target
from nki.target.names import COLLECTIVE
from nki.topology import collective_time, load_instance
from nki.topology.fit import Run, fit
from nki.topology.records import Coefficients

TRUE = {"start_ns": 7000.0, "hop_ns": 1100.0, "network_hop_ns": 21000.0, "dma_share": 0.3, "link_share": 0.6}


def test_names_are_those_of_the_coefficients() -> None:
    assert [field.name for field in fields(Coefficients)] == list(COLLECTIVE)


def test_a_fit_finds_what_runs_of_many_kinds_were_made_with() -> None:
    trn2, instance, random = load_target("trn2"), load_instance("trn2"), np.random.default_rng(0)
    device = replace(trn2, collectives=MappingProxyType(TRUE))
    kinds = product(("all_reduce", "all_gather", "permute"), (2, 4, 8, 64, 128), (2**10, 2**20, 2**24, 2**28))
    runs = []
    for operation, ranks, nbytes in kinds:
        lists = (tuple(range(ranks)),)
        ns = collective_time(operation, nbytes, lists, instance, device).ns
        runs.append(Run(operation, nbytes, lists, ns * random.normal(1.0, 0.01)))
    found = fit(runs, instance, trn2)
    fitted = {each.name: each.value for each in found.coefficients if each.fitted}
    assert fitted.keys() >= TRUE.keys()
    assert {name: fitted[name] for name in TRUE} == pytest.approx(TRUE, rel=0.05)
    wrong = [abs(ns / run.ns - 1) for run, ns in zip(runs, found.after, strict=True)]
    assert max(wrong) < 0.1 < max(abs(ns / run.ns - 1) for run, ns in zip(runs, found.before, strict=True))


def test_what_runs_do_not_tell_is_left() -> None:
    trn2 = load_target("trn2")
    run = Run("all_reduce", 2.0**30, ((0, 1),), 1e7)
    found = {each.name: each for each in fit([run], load_instance("trn2"), trn2).coefficients}
    assert not found["network_hop_ns"].fitted and found["network_hop_ns"].why == "no run depends on it"
    assert found["start_ns"].value == found["start_ns"].before and "only" in found["start_ns"].why
