"""Simulated devices: cores with memory that accounts for itself, each with a thread that executes models."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nki.runtime.memory import Account
from nki.runtime.status import refused
from nki.target.model import Target

MOST_WAITING = 64
"""Executions that may wait for one core."""


@dataclass(slots=True)
class Job:
    """One execution: what to run, and what came of it once `done` is set."""

    run: Callable[[], Any]
    done: threading.Event = field(default_factory=threading.Event)
    result: Any = None
    error: BaseException | None = None
    late: bool = False


class Core:
    """A simulated core.

    Attributes:
        number: among all cores of the runtime.
        device: the number of its device.
        account: of its memory, which the cores of a stack share.
    """

    def __init__(self, number: int, device: int, account: Account) -> None:
        self.number = number
        self.device = device
        self.account = account
        self._lock = threading.Lock()
        self._jobs: queue.Queue[Job | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._running: Job | None = None

    @property
    def late(self) -> bool:
        """Whether it still works on something that nobody waits for any more."""
        running = self._running
        return running is not None and running.late

    def execute(self, run: Callable[[], Any], timeout: float | None) -> Any:
        """Run on this core, after what waits for it already.

        Args:
            timeout: seconds; None waits for ever.

        Raises:
            NrtError: "runtime.timeout", "runtime.busy" while a call goes on that nobody waits for, or "runtime.queue".
        """
        if self.late:
            raise refused(
                "runtime.busy",
                f"core {self.number} still works on a call whose time was over",
                "a simulated core cannot be stopped in the middle of a call",
                "wait and try again, or use another core",
            )
        job = Job(run)
        self._submit(job)
        if not job.done.wait(timeout):
            job.late = True
            if not job.done.is_set():
                raise refused(
                    "runtime.timeout",
                    f"core {self.number} was not ready after {timeout} s",
                    "a call ends within the time that its caller gives it",
                    "give it more time; the simulation is slower than the device",
                )
        if job.error is not None:
            raise job.error
        return job.result

    def close(self) -> None:
        """End the thread when what waits is done; nothing of it keeps the process alive."""
        with self._lock:
            if self._thread is not None:
                self._jobs.put(None)
                self._thread = None

    def _submit(self, job: Job) -> None:
        with self._lock:
            try:
                self._jobs.put_nowait(job)
            except queue.Full:
                raise refused(
                    "runtime.queue",
                    f"{MOST_WAITING} calls wait for core {self.number}",
                    "a limited number of calls waits for a core",
                    "wait for earlier calls, or use more cores",
                ) from None
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=f"nki core {self.number}", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._running = job
            if not job.late:  # nobody waits for it any more
                try:
                    job.result = job.run()
                except BaseException as error:  # noqa: BLE001 - it is raised where the call was made
                    job.error = error
            self._running = None
            job.done.set()


def cores_of(target: Target, devices: int) -> list[Core]:
    """The cores of a number of devices, with the memory of the target."""
    cores = []
    for device in range(devices):
        hbm = target.hbm
        accounts = [Account(f"device {device}, stack {stack}", hbm.bytes_per_stack) for stack in range(hbm.stacks)]
        for core in range(target.cores_per_device):
            account = accounts[min(core // hbm.cores_per_stack, hbm.stacks - 1)]
            cores.append(Core(device * target.cores_per_device + core, device, account))
    return cores
