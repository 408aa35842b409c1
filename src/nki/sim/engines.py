"""What the engines remember from one instruction to the next: accumulators, registers, random generators."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.core.errors import ExecutionError
from nki.core.register import VirtualRegister
from nki.options import Options
from nki.sim.notes import Notes, Report
from nki.sim.numpy_arrays import F32
from nki.sim.random import VECTOR_STREAMS, Generator, Place, keep, kept
from nki.spec.engine import engine as Engine
from nki.target.model import Target


class EngineState(Notes):
    """State of the engines of one core; `engine` is the one that runs."""

    def __init__(self, target: Target, options: Options, report: Report, core: int) -> None:
        super().__init__(report)
        self.target = target
        self.core = core
        self.engine = Engine.unknown
        self._seed = options.seed
        self._registers: dict[int, int] = {}
        reducing = (Engine.vector, Engine.scalar)
        self._kept = np.full((len(reducing), target.partitions, 1), np.nan, F32)
        self._noted = np.zeros_like(self._kept)
        self._accumulators = dict(zip(reducing, self._kept, strict=True))
        self._accumulated = dict(zip(reducing, self._noted, strict=True))
        self._generators: dict[Engine, Generator] = {}

    def read_accumulator(self, partitions: int) -> np.ndarray:
        return self._accumulators[self.engine][:partitions].copy()

    def write_accumulator(self, values: Any) -> None:
        self._accumulators[self.engine][: values.shape[0]] = values
        self._accumulated[self.engine][: values.shape[0]] = 1

    def clobber_accumulator(self) -> None:
        self._accumulators[self.engine][...] = np.nan
        self._accumulated[self.engine][...] = 0

    def accumulator_defined(self, partitions: int) -> np.ndarray:
        return self._accumulated[self.engine][:partitions].copy()

    def register_address(self, path: str, engine: Engine) -> int:
        """Where the accumulator registers of an engine are ("accumulator"), or the notes on them ("defined").

        Both are float32, one for each partition.
        """
        kept = self._accumulators if path == "accumulator" else self._accumulated
        address: int = kept[engine].__array_interface__["data"][0]
        return address

    def restart(self, report: Report) -> None:
        """Forget everything, as a new machine has."""
        self._report = report
        self._warned.clear()
        self._registers.clear()
        self._generators.clear()
        self._kept.fill(np.nan)
        self._noted.fill(0)

    def read_register(self, register: VirtualRegister | int) -> int:
        if isinstance(register, int):
            return register
        if register.id not in self._registers:
            raise ExecutionError(
                "register.uninitialized",
                "a register is read before anything was moved into it",
                fix="give nisa.register_alloc an initial value, or load it first",
            )
        return self._registers[register.id]

    def write_register(self, register: VirtualRegister, value: int) -> None:
        self._registers[register.id] = (int(value) + (1 << 31)) % (1 << 32) - (1 << 31)

    def random_bits(self, partitions: int, count: int) -> np.ndarray:
        return self._generator().bits(partitions, count)

    def seed_random(self, state: Any) -> None:
        """Seed the engine's generator with one word, for this program, or set its states, for those after it too."""
        generator = self._generator()
        generator.seed(state)
        if np.size(state) > 1:
            keep(self._place(), generator)

    def random_state(self, partitions: int, words: int) -> np.ndarray:
        return self._generator().state(partitions, words)

    def _generator(self) -> Generator:
        if self.engine not in self._generators:
            streams = VECTOR_STREAMS if self.engine is Engine.vector else 1
            seed = self._seed + (self.core << 8) + self.engine.value
            found = kept(self._place()) or Generator(self.target.partitions, seed, streams)
            self._generators[self.engine] = found
        return self._generators[self.engine]

    def _place(self) -> Place:
        return self.target.name, self.ranks()[0], self.core, self.engine

    def ranks(self) -> tuple[int, int]:
        """The number of this rank, and how many there are."""
        return 0, 1
