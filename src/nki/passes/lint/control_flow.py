"""The walk of a lint over a program: what certainly runs, and what perhaps does."""

from __future__ import annotations

from abc import ABC, abstractmethod

from nki.spec.program import Block, ForLoop, Issued, WhileLoop, trips_of


class ControlFlow(ABC):
    """Follows blocks and loops in the order of the program; what a lint does at each of them is the subclass."""

    def block(self, block: Block, *, certain: bool) -> None:
        """Follow a block, which certainly runs or not."""
        self.enter(block)
        for item in block.items:
            if isinstance(item, Issued):
                self.instruction(item, certain)
            else:
                trips = trips_of(item)
                self.loop(item, trips, certain and trips is not None)

    # A lint that knows nothing of tensors has nothing to do here.
    def enter(self, block: Block) -> None:  # noqa: B027
        """Look at a block before what is in it; its tensors are new ones."""

    @abstractmethod
    def instruction(self, issued: Issued, certain: bool) -> None:
        """Look at an instruction, which certainly runs or not."""

    @abstractmethod
    def loop(self, loop: ForLoop | WhileLoop, trips: int | None, certain: bool) -> None:
        """Follow the body as often as the lint has to.

        Args:
            trips: None if nobody knows before it runs.
            certain: whether its trips certainly run.
        """
