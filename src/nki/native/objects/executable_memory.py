"""Puts objects into memory that is written first and executed afterwards, never both at once."""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
from functools import cache

from nki.native.objects import elf

_READ, _WRITE, _EXECUTE = 1, 2, 4
_PRIVATE_ANONYMOUS = 0x02 | 0x20


@cache  # tried once: the system does not change its mind
def refusal() -> str:
    """Why objects cannot be loaded in this process; "" if they can."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or sys.maxsize < 1 << 32:
        return f"the loader is for Linux on x86-64, and this is {platform.system()} on {platform.machine()}"
    if mmap.PAGESIZE != elf.PAGE:
        return f"the loader is for pages of {elf.PAGE} bytes, and these have {mmap.PAGESIZE}"
    address = 0
    try:
        address = _map(elf.PAGE)
        _protect(address, elf.PAGE, _READ | _EXECUTE)
    except OSError as error:
        return f"the system refuses memory that is executed: {error}"
    finally:
        if address:
            _unmap(address, elf.PAGE)
    return ""


def load(data: bytes) -> dict[str, int]:
    """Load an object for the rest of this process; returns the addresses of its functions, by name.

    Raises:
        nki.native.objects.elf.ElfError: the object is damaged or uses something that is not supported.
        OSError: the system gives no memory, or does not let it be executed.
    """
    image = elf.read(data)
    size = len(image.data)
    address = _map(size)
    try:
        ctypes.memmove(address, elf.relocate(image, address, external()), size)
        _protect(address, image.code, _READ | _EXECUTE)
        if image.constants:
            _protect(address + image.code, image.constants, _READ)
    except BaseException:
        _unmap(address, size)
        raise
    return {name: address + offset for name, offset in image.functions.items()}


@cache  # addresses of the C library, which stay
def external() -> dict[str, int]:
    """Addresses of the functions that an object may call."""
    libc = _libc()
    pointers = {name: ctypes.cast(libc[name], ctypes.c_void_p).value for name in elf.EXTERNAL}
    return {name: address for name, address in pointers.items() if address is not None}


@cache
def _libc() -> ctypes.CDLL:
    """Not Python's mmap objects: they give memory back when the interpreter ends, while threads may run in it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


def _map(size: int) -> int:
    address = _libc().mmap(None, size, _READ | _WRITE, _PRIVATE_ANONYMOUS, -1, 0)
    if address is None or address == ctypes.c_void_p(-1).value:
        raise _failed("mmap")
    return int(address)


def _protect(address: int, size: int, protection: int) -> None:
    if _libc().mprotect(address, size, protection):
        raise _failed("mprotect")


def _unmap(address: int, size: int) -> None:
    _libc().munmap(address, size)


def _failed(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call} failed with error {number}")
