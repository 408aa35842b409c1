"""Status codes of the runtime, and the error that carries one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from nki.core.errors import NkiError
from nki.core.source import UNKNOWN


class Status(IntEnum):
    """How a call of the runtime ended, by the names and numbers of NRT_STATUS (neuron-runtime/api/nrt_status.rst)."""

    SUCCESS = 0
    FAILURE = 1
    INVALID = 2
    INVALID_HANDLE = 3
    RESOURCE = 4
    TIMEOUT = 5
    QUEUE_FULL = 7
    LOAD_NOT_ENOUGH_NC = 9
    UNSUPPORTED_NEFF_VERSION = 10
    UNINITIALIZED = 13
    CLOSED = 14
    EXEC_BAD_INPUT = 1002
    EXEC_COMPLETED_WITH_ERR = 1004
    EXEC_NC_BUSY = 1005
    EXEC_OOB = 1006


STATUS_OF: Mapping[str, Status] = MappingProxyType(
    {
        "runtime.argument": Status.INVALID,
        "runtime.bounds": Status.EXEC_OOB,
        "runtime.busy": Status.EXEC_NC_BUSY,
        "runtime.closed": Status.CLOSED,
        "runtime.core": Status.LOAD_NOT_ENOUGH_NC,
        "runtime.execution": Status.EXEC_COMPLETED_WITH_ERR,
        "runtime.file": Status.UNSUPPORTED_NEFF_VERSION,
        "runtime.handle": Status.INVALID_HANDLE,
        "runtime.input": Status.EXEC_BAD_INPUT,
        "runtime.memory": Status.RESOURCE,
        "runtime.queue": Status.QUEUE_FULL,
        "runtime.target": Status.INVALID,
        "runtime.timeout": Status.TIMEOUT,
    }
)
"""The status of each error of the runtime."""


class NrtError(NkiError, RuntimeError):
    """A call of the runtime that failed; `status` says how."""

    @property
    def status(self) -> Status:
        """The status code."""
        return STATUS_OF.get(self.code, Status.FAILURE)


def refused(code: str, message: str, rule: str, fix: str) -> NrtError:
    """An error that has no place in a source file."""
    return NrtError(code, message, rule=rule, fix=fix, location=UNKNOWN)
