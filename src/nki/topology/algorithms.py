"""How long the algorithms of collectives take: hops times a latency, and bytes at a rate (the alpha-beta model).

The algorithms, what each of them is for and how they are put together across servers is documented in
neuron-runtime/explore/intranode-collective-comm.rst and internode-collective-comm.rst; which one is taken is not. Here
it is the one that takes the least time.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log2
from typing import NamedTuple

from nki.target.model import Target
from nki.topology.placement import Spread, links_per_chip
from nki.topology.records import Instance


class Term(NamedTuple):
    """One stage of a collective.

    Attributes:
        algorithm: "ring", "kangaring", "mesh", "one-step mesh", "recursive doubling".
        where: "chip", "domain" (chips with links to each other) or "network".
        hops: one after another.
        latency_ns: of the hops.
        transfer_ns: of the bytes.
    """

    algorithm: str
    where: str
    hops: int
    latency_ns: float
    transfer_ns: float

    @property
    def ns(self) -> float:
        """Both together: a hop begins when the data of the one before has come."""
        return self.latency_ns + self.transfer_ns


class Rates(NamedTuple):
    """GB/s that a list of ranks gets."""

    rank: float
    chip: float
    network: float


def rates(of: Spread, instance: Instance, target: Target) -> Rates:
    """What a rank moves, what leaves a chip over links, and what leaves a domain through the network."""
    terms, domain = instance.collective, instance.domain
    rank = target.dma.aggregate_gbps * instance.lnc * terms.dma_share
    links = domain.chip_gbps / 2 * min(of.links / links_per_chip(domain), 1.0) * terms.link_share
    cards = instance.network.server_gbps * domain.servers * of.chips / domain.chips
    return Rates(rank, links / of.sharing, cards / of.sharing)


def gathered(nbytes: float, of: Spread, instance: Instance, target: Target) -> tuple[Term, ...]:
    """An all-gather that makes `nbytes`, or a reduce-scatter that begins with as many."""
    across = _through_network(nbytes, of, instance, target)
    return (*across, *_within(nbytes, of, instance, target))


def reduced(nbytes: float, of: Spread, instance: Instance, target: Target) -> tuple[Term, ...]:
    """An all-reduce: a reduce-scatter and an all-gather, or all of it sent to everybody in one step."""
    twice = 2 * gathered(nbytes, of, instance, target)
    if of.domains > 1 or of.ranks == 1:
        return twice
    once = (_mesh("one-step mesh", nbytes * of.ranks, of, instance, target),)
    return min(twice, once, key=total)


def exchanged(nbytes: float, of: Spread, instance: Instance, target: Target) -> tuple[Term, ...]:
    """An all-to-all of `nbytes` for each rank: every part goes its own way."""
    per_chip = of.ranks / of.domains / of.chips
    across = _through_network(nbytes * per_chip * of.chips, of, instance, target)
    mesh = _mesh("mesh", nbytes, of, instance, target, leaving=nbytes * per_chip * (of.chips - 1) / of.chips)
    return (*across, mesh)


def passed_on(nbytes: float, of: Spread, instance: Instance, target: Target) -> tuple[Term, ...]:
    """Every rank sends `nbytes` to one other rank, over one link if that is on another chip."""
    terms, rate = instance.collective, rates(of, instance, target)
    if of.domains > 1:
        slowest = min(rate.rank, rate.network)
        return (Term("ring", "network", 1, terms.network_hop_ns, nbytes / slowest),)
    if of.chips > 1:
        slowest = min(rate.rank, rate.chip / of.links)
        return (Term("ring", "domain", 1, terms.hop_ns, nbytes / slowest),)
    return (Term("ring", "chip", 1, terms.hop_ns, nbytes / rate.rank),)


def total(terms: tuple[Term, ...]) -> float:
    """ns of stages one after another."""
    return sum(term.ns for term in terms)


def _within(nbytes: float, of: Spread, instance: Instance, target: Target) -> tuple[Term, ...]:
    ranks = of.ranks // of.domains
    if ranks == 1:
        return ()
    return (min(_choices(nbytes, ranks, of, instance, target), key=lambda term: term.ns),)


def _choices(nbytes: float, ranks: int, of: Spread, instance: Instance, target: Target) -> Iterator[Term]:
    terms, rate = instance.collective, rates(of, instance, target)
    where = "chip" if of.chips == 1 else "domain"
    moved = nbytes * (ranks - 1) / ranks / rate.rank
    left = nbytes * (of.chips - 1) / of.chips / rate.chip
    yield _mesh("mesh", nbytes, of, instance, target)
    hops = ranks - 1
    yield Term("ring", where, hops, hops * terms.hop_ns, max(moved, left))
    if of.chips > 1 and of.whole and ranks > of.chips:
        hops = ranks // 2
        yield Term("kangaring", where, hops, hops * terms.hop_ns, max(moved, left))
    if of.chips > 1 and log2(of.chips).is_integer():
        hops = int(log2(of.chips)) + (ranks > of.chips)
        slower = max(moved, left) * terms.rdh_slowdown
        yield Term("recursive doubling", where, hops, hops * terms.hop_ns, slower)


def _mesh(
    name: str, nbytes: float, of: Spread, instance: Instance, target: Target, leaving: float | None = None
) -> Term:
    """Everybody sends to everybody at once; data that goes over several chips shares their links with other data."""
    terms, rate, ranks = instance.collective, rates(of, instance, target), of.ranks // of.domains
    hops = 1 if name == "one-step mesh" or of.chips == 1 or ranks == of.chips else 2
    moved = nbytes * (ranks - 1) / ranks / rate.rank
    left = (nbytes * (of.chips - 1) / of.chips if leaving is None else leaving) / rate.chip
    slower = max(terms.mesh_slowdown * of.distance, 1.0)
    where = "chip" if of.chips == 1 else "domain"
    return Term(name, where, hops, hops * terms.hop_ns, max(moved, left) * slower)


def _through_network(nbytes: float, of: Spread, instance: Instance, target: Target) -> tuple[Term, ...]:
    if of.domains == 1:
        return ()
    terms, rate = instance.collective, rates(of, instance, target)
    moved = nbytes * (of.domains - 1) / of.domains / rate.network
    ring = of.domains - 1
    steps = ceil(log2(of.domains))
    choices = (
        Term("ring", "network", ring, ring * terms.network_hop_ns, moved),
        Term("recursive doubling", "network", steps, steps * terms.network_hop_ns, moved * terms.rdh_slowdown),
        Term("mesh", "network", 1, terms.network_hop_ns, moved * max(terms.mesh_slowdown * steps, 1.0)),
    )
    return (min(choices, key=lambda term: term.ns),)
