"""Kernels with collectives, on several ranks in one process."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from nki.core.errors import LaunchError, NkiError
from nki.core.shown import shown
from nki.core.source import here
from nki.kernel import Kernel
from nki.ranks.one_at_a_time import OneAtATime
from nki.ranks.parallel import Parallel
from nki.runtime.arguments import checked, one_of

_MOST = 64
"""Ranks of a launch: those of one trn2 instance at LNC=2; nki/guides/architecture/trainium2_arch.rst."""


@checked(parallel=one_of(bool, rule="True or False"))
def run_ranks(
    kernel: Any,
    arguments: Sequence[Sequence[Any]],
    keywords: Sequence[Mapping[str, Any]] | None = None,
    *,
    parallel: bool = True,
) -> list[Any]:
    """Call a kernel on several ranks, which meet in its collectives; returns the result of each rank.

    Ranks run at the same time, in threads that wait for each other in collectives. Results and errors are those of
    ranks that run one at a time. Every rank has its own HBM; with ``kernel[2]`` it is a logical core of two cores, and
    core c meets core c of the other ranks.

    Args:
        kernel: a kernel, ``kernel[2]``, ``nki.simulate(kernel)`` or a plain function; the same for all ranks.
        arguments: the positional arguments of each rank, 1 to 64 of them.
        keywords: the keyword arguments of each rank.
        parallel: False has one rank run at a time, in an order that does not change; it hands over where it waits for
            others. So a debugger has one rank before it, and what ranks print does not mix.

    An array that several ranks get and write to is one memory; only ranks that run one at a time write to it in an
    order that does not change.

    Raises:
        LaunchError: other numbers of ranks or keywords (``ranks.arguments``); a collective names a rank that is not
            there (``collective.ranks``).
        DivergenceError: ranks wait for each other at different calls (``ranks.mismatch``), or for one that has ended
            (``ranks.deadlock``).
        NkiError: what a single call raises; a note says on which rank.
    """
    count = len(arguments) if isinstance(arguments, list | tuple) else 0
    if not 1 <= count <= _MOST or not all(isinstance(own, list | tuple) for own in arguments):
        raise _refused(f"arguments is {type(arguments).__name__} of {count}")
    if keywords is not None:
        if not isinstance(keywords, list | tuple) or not all(isinstance(own, Mapping) for own in keywords):
            raise _refused(f"keywords is {shown(keywords)}")
        if len(keywords) != count:
            raise _refused(f"arguments are for {count} ranks, keywords for {len(keywords)}")
    made = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
    given = [{}] * count if keywords is None else [dict(own) for own in keywords]

    where = here()

    def task(rank: int) -> Any:
        try:
            return made(*arguments[rank], **given[rank])
        except NkiError as error:
            if not error.location.frames or error.location.frames[0].file == threading.__file__:
                error.location = where  # an argument's fault, which has no line in the kernel
            raise

    ranks = Parallel(count) if parallel else OneAtATime(count)
    return ranks.run([lambda rank=rank: task(rank) for rank in range(count)])  # type: ignore[misc]


def _refused(message: str) -> LaunchError:
    return LaunchError(
        "ranks.arguments",
        f"run_ranks: {message}",
        rule=f"arguments has a tuple of positional arguments for each rank, of 1 to {_MOST} ranks, and so has keywords",
        fix="write run_ranks(kernel, [(x0, w), (x1, w)])",
    )
