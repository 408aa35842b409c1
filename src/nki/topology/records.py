"""What is connected with what: the chips of an instance, and instances with each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from nki.target.model import Provenance


@dataclass(frozen=True, slots=True)
class Domain:
    """Chips that NeuronLinks connect: those of one server, or of all servers of an UltraServer.

    Attributes:
        servers: that the chips are in.
        shape: chips along each dimension; the first one goes through the servers if there are several.
        wiring: "torus" (rings along each dimension) or "switch" (every chip reaches every other one in one hop).
        chip_gbps: GB/s of all links of a chip, both directions together.
    """

    servers: int
    shape: tuple[int, ...]
    wiring: str
    chip_gbps: float

    @property
    def chips(self) -> int:
        """How many there are."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Network:
    """EFA, which connects servers of different domains; GB/s of one server, in each direction."""

    server_gbps: float


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The terms of a collective's time that are no sizes.

    Attributes:
        start_ns: until the first hop of a collective begins.
        hop_ns: of one hop between chips, or between the cores of a chip.
        network_hop_ns: of one hop through the network.
        dma_share: what of the DMA of its cores a rank moves data with in a collective.
        link_share: what of the rate of a link data gets.
        mesh_slowdown: how much longer data takes in a mesh, for each hop of the mean distance of its chips.
        rdh_slowdown: how much longer data takes in recursive doubling and halving.
    """

    start_ns: float
    hop_ns: float
    network_hop_ns: float
    dma_share: float
    link_share: float
    mesh_slowdown: float
    rdh_slowdown: float


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """What one rents: chips in a domain. Equality is identity, as of targets.

    Attributes:
        target: the generation of its chips, by name.
        generation: the same as a number, which targets of somebody's own coefficients have as well.
        lnc: cores of one rank, by default.
    """

    name: str
    aliases: tuple[str, ...]
    target: str
    generation: int
    lnc: int
    domain: Domain
    network: Network
    collective: Coefficients
    provenances: Mapping[str, Provenance] = field(repr=False)
