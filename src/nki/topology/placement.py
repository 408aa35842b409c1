"""Where ranks are: rank r is logical core r of a row of chips, chip after chip and domain after domain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from nki.target.model import Target
from nki.topology.records import Domain, Instance


class Spread(NamedTuple):
    """How the ranks of one list lie on chips.

    Attributes:
        ranks: of the list.
        domains: that it has ranks in.
        chips: of one domain that it has ranks on; the most of all domains.
        whole: whether it has all ranks of each of its chips.
        links: of a chip that lead to another chip of the list, on average, and at least one.
        distance: hops between two of its chips, on average; 0 on one chip.
        sharing: lists of the same collective that have ranks on the same chip, the most of all chips.
    """

    ranks: int
    domains: int
    chips: int
    whole: bool
    links: float
    distance: float
    sharing: int


class Place(NamedTuple):
    """A rank's domain and chip; chips count through all domains."""

    domain: int
    chip: int


def ranks_per_chip(instance: Instance, target: Target) -> int:
    """Logical cores of one chip."""
    return max(target.cores_per_device // instance.lnc, 1)


def place(rank: int, instance: Instance, per_chip: int) -> Place:
    """Where a rank is."""
    chip = rank // per_chip
    return Place(chip // instance.domain.chips, chip)


@lru_cache(maxsize=256)  # as many as there are groups in programs
def spread(lists: tuple[tuple[int, ...], ...], instance: Instance, per_chip: int) -> Spread:
    """How the longest way that one of these lists has to go lies on chips."""
    on_chip = Counter(chip for ranks in lists for chip in {rank // per_chip for rank in ranks})
    sharing = max(on_chip.values())
    return max((_spread(ranks, instance, per_chip, sharing) for ranks in lists[:_LOOKED_AT]), key=_way)


_LOOKED_AT = 64
"""Lists of which the longest way is found: replica groups repeat one pattern."""


def _way(of: Spread) -> tuple[int, int, float]:
    return of.domains, of.chips, of.distance


def _spread(ranks: Sequence[int], instance: Instance, per_chip: int, sharing: int) -> Spread:
    chips = Counter(rank // per_chip for rank in ranks)
    domains: dict[int, list[int]] = {}
    for chip in chips:
        domains.setdefault(chip // instance.domain.chips, []).append(chip % instance.domain.chips)
    most = max(domains.values(), key=len)
    links, distance = _neighbours(tuple(sorted(most)), instance.domain)
    whole = all(count == per_chip for count in chips.values())
    return Spread(len(ranks), len(domains), len(most), whole, links, distance, sharing)


@lru_cache(maxsize=256)  # as many as there are groups in programs
def _neighbours(chips: tuple[int, ...], domain: Domain) -> tuple[float, float]:
    """Links of a chip within a set of chips, and the mean distance of two of them."""
    if len(chips) == 1:
        return 1.0, 0.0
    if domain.wiring == "switch":
        return float(links_per_chip(domain)), 1.0
    places = [_coordinates(chip, domain.shape) for chip in chips]
    hops = [_distance(one, two, domain.shape) for one in places for two in places if one != two]
    return max(hops.count(1) / len(chips), 1.0), sum(hops) / len(hops)


def links_per_chip(domain: Domain) -> int:
    """The links of one chip: two for each dimension of a torus, one if it has two chips; one to a switch."""
    return 1 if domain.wiring == "switch" else sum(min(size - 1, 2) for size in domain.shape)


def _coordinates(chip: int, shape: Sequence[int]) -> tuple[int, ...]:
    found: list[int] = []
    for size in reversed(shape):
        chip, at = divmod(chip, size)
        found.append(at)
    return tuple(reversed(found))


def _distance(one: Sequence[int], two: Sequence[int], shape: Sequence[int]) -> int:
    return sum(min((a - b) % size, (b - a) % size) for a, b, size in zip(one, two, shape, strict=True))
