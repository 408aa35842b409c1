"""Simulated devices: cores with memory that accounts for itself, each with a thread that executes models."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from nki.core.locks import lock, renewed
from nki.runtime.memory import Account
from nki.runtime.status import refused
from nki.target.model import Target

MOST_WAITING = 64
"""Executions that may wait for one core."""
_LOOK = 0.05
"""Seconds after which who waits for a core looks whether it is still wanted."""


_NOTHING = object()

CoreStatus = Literal["ready", "running", "timed out"]


@dataclass(slots=True, eq=False)
class Job:
    """One execution: what to run, and what came of it once `done` is set; nothing if it was late.

    Attributes:
        late: whether nobody waits for it any more.
        within: the execution on another core that this one is part of.
    """

    run: Callable[[], Any]
    done: threading.Event = field(default_factory=threading.Event)
    result: Any = _NOTHING
    error: BaseException | None = None
    late: bool = False
    within: Job | None = None

    @property
    def given_up(self) -> bool:
        """Whether it, or what it is part of, is late."""
        return self.late or (self.within is not None and self.within.late)


class _Lane:
    """A thread that executes one job after another, and those that wait for it."""

    def __init__(self) -> None:
        self.jobs: queue.Queue[Job | None] = queue.Queue(MOST_WAITING + 1)
        self.running: Job | None = None
        self._started = False

    def start(self, name: str) -> None:
        """The thread is made with the first job."""
        if not self._started:
            self._started = True
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def end(self) -> None:
        """End the thread: nothing more comes, and what waits is executed before."""
        if self._started:
            self.jobs.put(None)

    def _work(self) -> None:
        while self._next():
            pass

    def _next(self) -> bool:
        """Execute the next job, of which nothing is kept then; False if there is none any more."""
        job = self.jobs.get()
        if job is None:
            return False
        self.running = job
        if not job.given_up:
            try:
                job.result = job.run()
            except BaseException as error:  # noqa: BLE001 - it is raised where the call was made
                job.error = error
        self.running = None
        job.done.set()
        return True


class DeviceCore:
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
        self._closed = False
        self._lock = lock()
        self.begin_anew()
        renewed(self)

    def begin_anew(self) -> None:
        """Have a thread to come, and nothing that waits: in a forked process, which has no thread but one."""
        self._lane = _Lane()

    @property
    def status(self) -> CoreStatus:
        """Whether it works on something, and whether anybody waits for that."""
        running = self._lane.running
        if running is None:
            return "ready" if self._lane.jobs.empty() else "running"
        return "timed out" if running.given_up else "running"

    def execute(self, run: Callable[[], Any], timeout: float | None, others: Sequence[DeviceCore] = ()) -> Any:
        """Run on this core, after what waits for it already.

        Args:
            timeout: seconds; None waits for ever.
            others: cores that it needs as well, in ascending order; they do nothing else meanwhile.

        Raises:
            NrtError: "runtime.timeout", "runtime.busy" while a call goes on that nobody waits for, or "runtime.queue".
        """
        for core in (self, *others):
            core._check_on_time()
        job = Job(run)
        if others:
            job.run = lambda: _holding(others, job, run)
        self._submit(job)
        try:
            job.late = not job.done.wait(timeout)
        except BaseException:
            job.late = True  # an interrupt: nobody waits any more
            raise
        if job.late and job.result is _NOTHING and job.error is None:  # perhaps it was done meanwhile
            raise refused(
                "runtime.timeout",
                f"core {self.number} was not ready after {timeout} s",
                "a call ends within the time that its caller gives it",
                "give it more time; the simulation is slower than the device",
            )
        if job.error is not None:
            raise job.error
        return job.result

    @contextmanager
    def held(self, by: Job) -> Iterator[None]:
        """This core does nothing else in the body of the ``with`` statement, which begins when it is ready."""
        mine, over = threading.Event(), threading.Event()

        def wait() -> None:
            mine.set()
            over.wait()

        job = Job(wait, within=by)
        self._submit(job)
        while not mine.wait(_LOOK) and not job.done.is_set():  # it is not started if `by` is late
            pass
        try:
            yield
        finally:
            over.set()

    def reset(self) -> None:
        """Leave a late job to a thread that is not this core's any more; another one executes what waits."""
        with self._lock:
            if self.status != "timed out":
                return
            left, self._lane = self._lane, _Lane()
            while True:
                try:
                    job = left.jobs.get_nowait()
                except queue.Empty:
                    break
                self._lane.jobs.put(job)
            left.end()
            self._lane.start(f"nki core {self.number}")

    def close(self) -> None:
        """End the thread when what waits is done; nothing of it keeps the process alive."""
        with self._lock:
            self._closed = True
            self._end_lane()

    def _end_lane(self) -> None:
        left, self._lane = self._lane, _Lane()
        left.end()

    def _check_on_time(self) -> None:
        if self.status == "timed out":
            raise refused(
                "runtime.busy",
                f"core {self.number} still works on a call whose time was over",
                "a simulated core cannot be stopped in the middle of a call",
                f"wait and try again, use another core, or give the call up with runtime.reset({self.number})",
            )

    def _submit(self, job: Job) -> None:
        with self._lock:
            if self._lane.jobs.qsize() >= MOST_WAITING:
                raise refused(
                    "runtime.queue",
                    f"{MOST_WAITING} calls wait for core {self.number}",
                    "a limited number of calls waits for a core",
                    "wait for earlier calls, or use more cores",
                )
            self._lane.jobs.put_nowait(job)
            self._lane.start(f"nki core {self.number}")
            if self._closed:  # part of a call on another core, which waited there
                self._end_lane()


def _holding(others: Sequence[DeviceCore], job: Job, run: Callable[[], Any]) -> Any:
    """Run with other cores held; nothing if nobody waits any more."""
    with ExitStack() as held:
        for core in others:
            held.enter_context(core.held(job))
        return _NOTHING if job.late else run()


def cores_of(target: Target, devices: int) -> list[DeviceCore]:
    """The cores of a number of devices, with the memory of the target."""
    cores = []
    for device in range(devices):
        hbm = target.hbm
        accounts = [Account(f"device {device}, stack {stack}", hbm.bytes_per_stack) for stack in range(hbm.stacks)]
        for core in range(target.cores_per_device):
            account = accounts[min(core // hbm.cores_per_stack, hbm.stacks - 1)]
            cores.append(DeviceCore(device * target.cores_per_device + core, device, account))
    return cores
