"""``nki cache``: the compiled kernels on disk."""

from __future__ import annotations

import time

import click

from nki.store.cache import Cache
from nki.store.settings import settings
from nki.tools.output import Command, echo, write_json
from nki.tools.request import JSON

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


@click.group("cache", short_help="Show or clear the compiled kernels on disk.")
def command() -> None:
    """Kernels that were compiled are kept on disk and found by what they were made from.

    NKI_CACHE=0 switches this off; NKI_CACHE_DIR and NKI_CACHE_LIMIT say where they are and what they may take.
    Both commands take --json.
    """


@command.command("info", cls=Command)
@JSON
def info(as_json: bool) -> None:
    """Show where they are, how many, and what they take."""
    enabled, held = settings().enabled, _cache().info()
    if as_json:
        write_json({"enabled": enabled, **held.to_json()})
        return
    echo(f"directory  {held.directory}{'' if enabled else '  (switched off by NKI_CACHE=0)'}")
    echo(f"entries    {held.entries}")
    echo(f"size       {_size(held.nbytes)} of {_size(held.limit_bytes)}")
    if held.entries:
        echo(f"last used  {_time(held.newest_ns)}, the oldest {_time(held.oldest_ns)}")


@command.command("clear", cls=Command)
@JSON
def clear(as_json: bool) -> None:
    """Remove all of them."""
    cache = _cache()
    removed = cache.clear()
    if as_json:
        write_json({"removed": removed.entries, "bytes": removed.nbytes, "directory": str(removed.directory)})
        return
    echo(f"removed {removed.entries} entries, {_size(removed.nbytes)}, from {removed.directory}")


def _cache() -> Cache:
    """The cache, also while it is switched off."""
    found = settings()
    return Cache(found.directory, found.limit_bytes)


def _size(nbytes: int) -> str:
    power = max(0, min(len(_UNITS) - 1, (nbytes.bit_length() - 1) // 10))
    return f"{nbytes / 1024**power:.{1 if power else 0}f} {_UNITS[power]}"


def _time(at_ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ns / 1e9))
