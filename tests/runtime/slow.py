"""A model whose calls last as long as a test wants."""

from __future__ import annotations

import threading
from typing import Any

from nki.runtime.model import Model


class Slow:
    """A model whose calls last until they are let go."""

    def __init__(self, model: Model) -> None:
        self.model, self.go, self.started = model, threading.Event(), threading.Event()

    def run(self, *args: Any, **more: Any) -> Any:
        self.started.set()
        self.go.wait(10)
        return self.model.run(*args, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)
