"""A process that carries out calls: pickled calls come in, what they return or raise goes out.

Only `nki.tune.processes` starts it, as a script, so that it imports what its calls need and nothing else. Pickles come
from the process that started it and from nowhere else.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any


def main() -> None:
    """Serve until the input ends."""
    replies = os.fdopen(os.dup(1), "wb")
    # What the user's module prints on import was printed in the first process already.
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    requests = sys.stdin.buffer
    sys.path[:] = pickle.load(requests)
    while True:
        try:
            call = pickle.load(requests)
        except EOFError:
            return
        pickle.dump(_reply(call), replies)
        replies.flush()


def _reply(call: bytes) -> bytes:
    """What a call gave, as bytes of their own: one that cannot be read leaves the next ones readable."""
    try:
        function, args, kwargs = pickle.loads(call)
        return pickle.dumps((True, function(*args, **kwargs)))
    except Exception as problem:  # noqa: BLE001  it is raised where the call was made
        return _failed(problem)


def _failed(problem: Exception) -> bytes:
    reply: Any = (False, problem)
    try:
        sent = pickle.dumps(reply)
        pickle.loads(sent)  # some exceptions are written and cannot be read
        return sent
    except Exception:  # noqa: BLE001  whatever the pickle of somebody's exception does
        return pickle.dumps((False, RuntimeError(f"{type(problem).__name__}: {problem}")))


if __name__ == "__main__":
    main()
