"""Processes that are forked while another thread works, in a process of their own: JAX and others object to forks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

START = """
import os, signal, threading

PATIENCE = 100  # seconds in which a child is over: some load and run a compiler, where others have the processors

def while_held(hold, child, times=1):
    '''Run `child` in forked processes while another thread is in the context; print their statuses, 14 if one hangs.'''
    there, over = threading.Event(), threading.Event()

    def work():
        with hold():
            there.set()
            over.wait()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert there.wait(PATIENCE)
        for _ in range(times):
            print(status(child))
    finally:
        over.set()
    thread.join()

def status(child):
    process = os.fork()
    if not process:
        signal.alarm(PATIENCE)
        try:
            child()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(process, 0)[1]
"""


def statuses(code: str, cache: Path) -> list[str]:
    """The words that a process prints which runs this code; it may call ``while_held(hold, child)``."""
    environment = os.environ | {"NKI_CACHE_DIR": str(cache), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", START + code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert not done.stderr, done.stderr
    return done.stdout.split()
