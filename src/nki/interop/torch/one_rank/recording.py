"""What a rank does in a step: compiled graphs, the collectives between them, and which waits for which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.distributed_c10d import ProcessGroup, _resolve_process_group
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nki.interop.torch.compile.compiled_graph import CompiledGraph, instead_of_running
from nki.interop.torch.user_location import user_line
from nki.target.model import Target
from nki.timing.ranks.step import Message, Run, Task

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})

_GATHERED = "all_gather"

_COLLECTIVES: Mapping[str, str] = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "allgather_": _GATHERED,
    "_allgather_base_": _GATHERED,
    "allgather_into_tensor_coalesced_": _GATHERED,
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "broadcast_": "broadcast",
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "all_gather_into_tensor": _GATHERED,
    "all_gather_into_tensor_coalesced": _GATHERED,
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "broadcast": "broadcast",
}
"""Operators of PyTorch that are collectives, by what they are in `nki.topology.times.OPERATIONS`."""

_NO_COLLECTIVES = frozenset({"wait_tensor", "_wrap_tensor_autograd"})
"""What there is among them that moves nothing."""

_PAIRS: Mapping[str, str] = {"send": "send", "recv_": "receive"}


class Recording(TorchDispatchMode):
    """While it is entered, graphs of the backend ``neuron`` are noted instead of run.

    Attributes:
        tasks: of the step, in the order of the calls.
        targets: of the graphs.
        eager: operators on their results, which take no time here, by name.
        untimed: collectives without a time, by name.
    """

    def __init__(self) -> None:
        """Nothing is noted yet."""
        super().__init__()
        self.tasks: list[Task] = []
        self.eager: dict[str, int] = {}
        self.untimed: dict[str, int] = {}
        self.targets: list[Target] = []
        self._made: dict[int, tuple[StorageWeakRef, frozenset[int]]] = {}
        self._around = ExitStack()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """What is compiled is noted where it is called."""
        return True

    def __enter__(self) -> Recording:
        self._around.enter_context(instead_of_running(self._graph))
        super().__enter__()
        return self

    def __exit__(self, *problem: Any) -> None:
        super().__exit__(*problem)
        self._around.close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note a collective, and which tasks the results of any other operator wait for."""
        kwargs = kwargs or {}
        if any(issubclass(kind, FakeTensor) for kind in types):
            return func(*args, **kwargs)  # PyTorch looks for shapes
        if any(kind not in _PLAIN for kind in types):
            return NotImplemented  # a tensor that consists of others: these come here next
        inputs = frozenset().union(*map(self._waits, _tensors((args, kwargs))))
        result = func(*args, **kwargs)
        namespace, name = func.namespace, func._schema.name.partition("::")[2]
        after = inputs
        if namespace in ("c10d", "_c10d_functional"):
            after = self._collective(name, args, kwargs, result, inputs)
        elif inputs and not func.is_view:
            self.eager[str(func)] = self.eager.get(str(func), 0) + 1
        changed = _written(func, args)
        self._note(_tensors((result, changed)), after)
        return result

    # --- graphs

    def _graph(self, graph: CompiledGraph, arguments: Sequence[Any]) -> list[Any]:
        after = frozenset().union(*map(self._waits, _tensors(arguments)))
        number = len(self.tasks)
        executable = graph.executable
        kernels = executable.model.part.kernels
        self.tasks.append(Run(executable.programs, graph.name, tuple(sorted(after)), tuple(kernels)))
        self.targets.append(executable.model.target)
        results = graph.unwritten()
        self._note(_tensors(results), frozenset({number}))
        return results

    # --- collectives

    def _collective(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, inputs: frozenset[int]
    ) -> frozenset[int]:
        """Note a collective; what then waits for it."""
        if name in _NO_COLLECTIVES:
            return inputs
        group = _group_of((*args, *kwargs.values()))
        operation = _COLLECTIVES.get(name) or _PAIRS.get(name)
        if group is None or operation is None:
            self.untimed[name] = self.untimed.get(name, 0) + 1
            return inputs
        ranks = tuple(dist.get_process_group_ranks(group))
        if name in _PAIRS:
            other, mine = ranks[_number(args)], dist.get_rank()
            ranks = (mine, other) if name == "send" else (other, mine)
        nbytes = _nbytes(name, args, result)
        self.tasks.append(Message(operation, nbytes, ranks, name.strip("_"), tuple(sorted(inputs)), user_line()))
        return frozenset({len(self.tasks) - 1})

    # --- which tasks a tensor waits for

    def _waits(self, tensor: torch.Tensor) -> frozenset[int]:
        found = self._made.get(tensor.untyped_storage()._cdata)
        return found[1] if found is not None and not found[0].expired() else frozenset()

    def _note(self, tensors: Iterable[torch.Tensor], tasks: frozenset[int]) -> None:
        for tensor in tensors:
            storage = tensor.untyped_storage()
            self._made[storage._cdata] = StorageWeakRef(storage), tasks


def _written(func: Any, args: Sequence[Any]) -> list[Any]:
    """Arguments that an operator writes to. Those of c10d do not say it: it is the first one, of all that receive."""
    if func.namespace == "c10d":
        return [] if func._schema.name == "c10d::send" else list(args[:1])
    return [value for value, about in zip(args, func._schema.arguments, strict=False) if about.is_write]


def _tensors(values: Any) -> list[torch.Tensor]:
    return [value for value in tree_leaves(values) if type(value) in _PLAIN]


def _group_of(values: Iterable[Any]) -> Any:
    """The process group among the arguments of an operator, which is an object or a name."""
    for value in values:
        if isinstance(value, torch.ScriptObject):
            try:
                return ProcessGroup.unbox(value)
            except RuntimeError:  # a reduction, or options
                continue
    names = [value for value in values if isinstance(value, str)]
    return _resolve_process_group(names[-1]) if names else None


def _number(args: Sequence[Any]) -> int:
    """The place of the partner in the group."""
    return next(int(value) for value in args if isinstance(value, int))


def _nbytes(name: str, args: Sequence[Any], result: Any) -> int:
    """Bytes as `nki.topology.collective_time` takes them: of what an all-gather makes, else of what a rank brings."""
    if _COLLECTIVES.get(name) != _GATHERED and not name.startswith(("_reduce_scatter", "reduce_scatter_", "alltoall")):
        return sum(tensor.nbytes for tensor in _tensors(args[:1]))
    if name.startswith("all_"):  # of the functional collectives, which return what they make
        return sum(tensor.nbytes for tensor in _tensors(result))
    written = _COLLECTIVES[name] == _GATHERED  # the first argument is what is written, the second what is brought
    return sum(tensor.nbytes for tensor in _tensors(args[0 if written or name == "reduce_scatter_tensor" else 1]))
