"""The process of a candidate: ``python -m nki.tools.grade.process.worker FD FOLDER``, with limits and a task on stdin.

It gives up what it can before it imports anything of the candidate, and then writes lines of JSON. Nothing that it
writes afterwards is believed: programs are verified, compiled, executed and timed by who asked.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from nki.tools.grade.process.confine import Limits, confine, readable_places


def _send(descriptor: int, message: dict[str, Any], write: Callable[[int, bytes], int] = os.write) -> None:
    data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
    while data:
        data = data[write(descriptor, data) :]


def main(descriptor: int, folder: Path) -> None:
    """Confine this process, trace the kernel for every set of arguments, and end."""
    asked = json.loads(sys.stdin.buffer.read())
    isolation = confine(folder, Limits(**asked["limits"]))
    # Only now, because NumPy may start threads, which would keep what was given up.
    from nki.tools.grade.process.originals import Originals
    from nki.tools.grade.process.task import task_of
    from nki.tools.grade.process.tracing import trace_sets
    from nki.tools.grade.process.watch import watch

    send = partial(_send, descriptor)
    send({"kind": "ready", **isolation.to_json()})
    watch(folder, readable_places(), lambda kind, what: send({"kind": "did", "what": kind, "text": what[:300]}))
    originals = Originals()
    trace_sets(task_of(asked["task"]), send)
    replaced = originals.replaced()
    if replaced:
        send({"kind": "replaced", "names": replaced[:20]})
    send({"kind": "done"})


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
    os._exit(0)  # what the candidate left for the end of the process is of no use to anybody
