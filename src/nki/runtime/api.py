"""The runtime: load models on simulated cores, allocate tensors there, write, execute, read, unload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from nki.core.dtypes import as_dtype
from nki.core.errors import NkiError
from nki.core.locks import lock, renewed
from nki.driver.prepare import chosen_target
from nki.runtime import arguments
from nki.runtime.arguments import Check, checked
from nki.runtime.device import DeviceCore, cores_of
from nki.runtime.handles import CoreState, LoadedModel, Tensor, as_argument, check_shape, failed, model_in, named
from nki.runtime.memory import MemoryUse
from nki.runtime.model import Model
from nki.runtime.spans import span
from nki.runtime.status import NrtError, refused
from nki.store.artifact.model import Port, stored


@dataclass(slots=True)
class _Held:
    tensors: set[Tensor] = field(default_factory=set)
    models: set[LoadedModel] = field(default_factory=set)


def _model(call: str, name: str, value: Any) -> Model | Path:
    if isinstance(value, Model):
        return value
    if not isinstance(value, str | Path):
        raise arguments.wrong(call, name, value, "a Model, or the path of a .neff file")
    return arguments.path(call, name, value)


_MOST_DEVICES = 1024
"""More than any published system has; simulated devices take memory of this machine."""
_HANDED_OUT = "one that this runtime handed out"
_CHECKS: Mapping[str, Check] = {
    "target": arguments.text,
    "devices": arguments.count,
    "core": arguments.count,
    "name": arguments.text,
    "shape": arguments.shape,
    "model": _model,
    "tensor": arguments.one_of(Tensor, rule=_HANDED_OUT, code="runtime.handle"),
    "loaded": arguments.one_of(LoadedModel, rule=_HANDED_OUT, code="runtime.handle"),
    "inputs": arguments.by_name(Tensor),
    "outputs": arguments.by_name(Tensor),
    "timeout": arguments.seconds,
}


class Runtime:
    """Simulated devices of a target: ``with Runtime("trn2") as runtime: ...``; several threads may use it.

    Calls fail with `NrtError`, whose `status` is the code of the vendor's runtime for that.

    Args:
        target: name of the target; the default one if empty.
        devices: how many there are.

    Raises:
        NrtError: "runtime.argument" for no device, or a target that nobody knows.
    """

    @checked(**_CHECKS)
    def __init__(self, target: str = "", devices: int = 1) -> None:
        if not 1 <= devices <= _MOST_DEVICES:
            rule = f"there are 1 to {_MOST_DEVICES} of them"
            raise refused("runtime.argument", f"{devices} devices", rule, "ask for as many as an instance has")
        self.target = as_argument(lambda: chosen_target(target))
        self._cores = cores_of(self.target, devices)
        self._lock = lock()
        self._held: _Held | None = _Held()
        renewed(self)

    def begin_anew(self) -> None:
        """In a forked process no call is open: other threads made them."""
        for loaded in self._held.models if self._held is not None else ():
            loaded._running = 0

    def __enter__(self) -> Runtime:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @checked(**_CHECKS)
    def load(self, model: Model | str | Path, core: int = 0) -> LoadedModel:
        """Put a model, or a ``.neff`` file of one, on a core; its weights and temporaries take memory there.

        A model of two cores takes `core` and the next one, which belong together: `core` is even.

        Raises:
            NrtError: "runtime.file", "runtime.target", "runtime.core", "runtime.memory", "runtime.closed".
        """
        held = self._holds()
        self._core(core)
        made = model if isinstance(model, Model) else model_in(Path(model))
        if made.target.name != self.target.name:
            raise refused(
                "runtime.target",
                f"model {made.name} was compiled for {made.target.name}, and these devices are {self.target.name}",
                "a model runs on the target that it was compiled for",
                f"compile it for {self.target.name}",
            )
        cores = self._group(made, core)
        with span(f"load {made.name}", "runtime", core=core, nbytes=made.weight_bytes):
            loaded = LoadedModel(made, core, cores, self._taken(made, cores))
            held.models.add(loaded)
            return loaded

    @checked(**_CHECKS)
    def allocate(self, shape: tuple[int, ...], dtype: object, core: int = 0, name: str = "") -> Tensor:
        """Memory of a core, filled with zeros.

        Raises:
            NrtError: "runtime.memory" with a table of who has it, "runtime.argument" for what is no shape or dtype,
                "runtime.core", "runtime.closed".
        """
        held, place, kind = self._holds(), self._core(core), as_argument(lambda: as_dtype(dtype))
        check_shape(shape)
        size = prod(shape) * stored(kind).itemsize
        number = place.account.take(f"tensor {name or 'without a name'} {kind}{list(shape)} on core {core}", size)
        made = Tensor(name, core, tuple(shape), kind, np.zeros(shape, kind.numpy), number)
        held.tensors.add(made)
        return made

    @checked(**_CHECKS)
    def tensors_of(self, loaded: LoadedModel) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """New tensors for the arguments and for the results of a model, by name, on its core."""
        self._check_loaded(loaded)
        part = loaded.model.part

        def made(ports: tuple[Port, ...]) -> dict[str, Tensor]:
            return {port.name: self.allocate(port.shape, port.dtype, loaded.core, port.name) for port in ports}

        return made(part.arguments), made(part.outputs)

    @checked(**_CHECKS)
    def write(self, tensor: Tensor, array: np.ndarray) -> None:
        """Copy an array of the same shape and dtype to the device."""
        self._check_tensor(tensor)
        try:
            found = np.asarray(array)
        except (TypeError, ValueError) as error:
            raise refused(
                "runtime.input",
                f"what is written to {tensor.name} is no array: {error}",
                "it is an array",
                "convert it",
            ) from None
        if found.shape != tensor.shape or found.dtype != tensor.dtype.numpy:
            raise refused(
                "runtime.input",
                f"{found.dtype}{list(found.shape)} is written to {tensor.name}, {tensor.dtype}{list(tensor.shape)}",
                "what is written has the shape and dtype of the tensor",
                "convert it on the host",
            )
        with span(f"write {tensor.name}", "transfer", core=tensor.core, nbytes=tensor.nbytes):
            tensor._array[...] = found

    @checked(**_CHECKS)
    def read(self, tensor: Tensor) -> np.ndarray:
        """A copy of what is on the device."""
        self._check_tensor(tensor)
        with span(f"read {tensor.name}", "transfer", core=tensor.core, nbytes=tensor.nbytes):
            return tensor._array.copy()

    @checked(**_CHECKS)
    def execute(
        self,
        loaded: LoadedModel,
        inputs: Mapping[str, Tensor],
        outputs: Mapping[str, Tensor],
        timeout: float | None = None,
    ) -> None:
        """Run a model on its core, after what waits for it there.

        Args:
            inputs, outputs: tensors of that core by the names of arguments and results. A result that takes the memory
                of an argument may have its tensor.
            timeout: seconds; None waits for ever. The outputs of a call that took too long are not written.

        Raises:
            NrtError: "runtime.input", "runtime.timeout", "runtime.busy" (see `reset`), "runtime.queue",
                "runtime.execution", "runtime.bounds", "runtime.handle", "runtime.closed".
        """
        self._check_loaded(loaded)
        part = loaded.model.part
        given = named(loaded, inputs, part.arguments, "argument")
        wanted = named(loaded, outputs, part.outputs, "result")
        for tensor in (*given, *wanted):
            self._check_tensor(tensor)
        arrays = [tensor._array for tensor in given]
        with self._lock:
            loaded._running += 1
        try:
            with span(f"dispatch {loaded.model.name}", "runtime", core=loaded.core):
                cores = [self._cores[number] for number in loaded.cores]
                outcome = cores[0].execute(lambda: loaded.model.run(arrays), timeout, cores[1:])
        except NrtError:
            raise
        except NkiError as error:
            raise failed(loaded, error) from error
        finally:
            with self._lock:
                loaded._running -= 1
        for tensor, array in zip(wanted, outcome.results, strict=True):
            tensor._array[...] = array

    @checked(**_CHECKS)
    def free(self, tensor: Tensor) -> None:
        """The memory of a tensor is free again; the tensor cannot be used any more."""
        self._check_tensor(tensor)
        self._holds().tensors.discard(tensor)
        self._cores[tensor.core].account.give(tensor._number)

    @checked(**_CHECKS)
    def unload(self, loaded: LoadedModel) -> None:
        """Take a model from its core. Raises NrtError "runtime.busy" while it runs."""
        self._check_loaded(loaded)
        with self._lock:
            if loaded._running:
                raise refused(
                    "runtime.busy",
                    f"model {loaded.model.name} runs on core {loaded.core}",
                    "a model is unloaded when no call of it is open",
                    "wait for its calls",
                )
        self._holds().models.discard(loaded)
        self._give(loaded._memory)

    @checked(**_CHECKS)
    def reset(self, core: int) -> None:
        """Make a core whose call timed out ready again: what still runs there is given up, what waits is executed.

        The simulation of the call goes on in the background until it ends; nothing of it is seen. Without such a call
        nothing happens.

        Raises:
            NrtError: "runtime.core", "runtime.closed".
        """
        self._core(core).reset()

    def state(self) -> list[CoreState]:
        """The cores, their memory, and the models on them."""
        held = self._holds()
        return [
            CoreState(
                core.number,
                core.device,
                core.account.name,
                core.account.capacity,
                core.account.used,
                tuple(sorted(loaded.model.name for loaded in held.models if core.number in loaded.cores)),
                core.status,
            )
            for core in self._cores
        ]

    @checked(**_CHECKS)
    def memory(self, core: int) -> list[MemoryUse]:
        """Who has memory of a core's stack, the largest first."""
        self._holds()
        return self._core(core).account.uses()

    def close(self) -> None:
        """Free everything; further calls are errors, a second `close` is none."""
        with self._lock:
            held, self._held = self._held, None
        if held is None:
            return
        for core in self._cores:
            core.close()
        for tensor in held.tensors:
            self._cores[tensor.core].account.give(tensor._number)
        for loaded in held.models:
            self._give(loaded._memory)

    def _group(self, model: Model, first: int) -> tuple[int, ...]:
        """The cores that a model takes."""
        count = len(model.programs)
        cores = tuple(range(first, first + count))
        if first % count or self._core(cores[-1]).device != self._cores[first].device:
            raise refused(
                "runtime.core",
                f"core {first} for model {model.name}, which runs on {count} cores",
                f"the cores of a model are neighbours; the first one is a multiple of {count}",
                f"load it on core {first - first % count}",
            )
        return cores

    def _taken(self, model: Model, cores: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """The memory of a model in the accounts of its cores."""
        wanted = [(cores[0], "weights of", model.weight_bytes), (cores[0], "model", model.memory_bytes)]
        wanted += [(core, "model", model.private_bytes(at)) for at, core in enumerate(cores) if at]
        taken: list[tuple[int, int]] = []
        for core, what, nbytes in wanted:
            try:
                taken.append((core, self._cores[core].account.take(f"{what} {model.name} on core {core}", nbytes)))
            except NrtError:
                self._give(taken)
                raise
        return tuple(taken)

    def _give(self, memory: Sequence[tuple[int, int]]) -> None:
        for core, number in memory:
            self._cores[core].account.give(number)

    def _holds(self) -> _Held:
        held = self._held
        if held is None:
            raise refused("runtime.closed", "the runtime is closed", "calls come before close", "open another one")
        return held

    def _core(self, number: int) -> DeviceCore:
        self._holds()
        if not 0 <= number < len(self._cores):
            raise refused(
                "runtime.core",
                f"core {number}",
                f"there are cores 0 to {len(self._cores) - 1}",
                "name one of them, or open the runtime with more devices",
            )
        return self._cores[number]

    def _check_tensor(self, tensor: Tensor) -> None:
        if tensor not in self._holds().tensors:
            raise refused(
                "runtime.handle",
                f"tensor {tensor.name} was freed, or belongs to another runtime",
                "a tensor is used between allocate and free",
                "allocate it again",
            )

    def _check_loaded(self, loaded: LoadedModel) -> None:
        if loaded not in self._holds().models:
            raise refused(
                "runtime.handle",
                f"model {loaded.model.name} was unloaded, or belongs to another runtime",
                "a model is used between load and unload",
                "load it again",
            )
