"""Import of a program's modules: the largest share of a command, and of a part's start.

Nothing that is imported becomes garbage, so the collector does not run meanwhile. When aiohttp is
imported, it loads all the authorities of the system, for sessions without a TLS context of their
own. Each session here has one, so these are not loaded, which saves a tenth of the start and 1 MiB.
"""

from __future__ import annotations

import gc
import importlib
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


def import_program(name: str) -> ModuleType:
    """Return a module with all that it imports: of a process that is ours alone."""
    gc.disable()
    try:
        with _no_authorities():
            return importlib.import_module(name)
    finally:
        gc.enable()


@contextmanager
def _no_authorities() -> Iterator[None]:
    """Make default TLS contexts without authorities: with one of them no server is trusted."""
    load = ssl.SSLContext.load_default_certs
    ssl.SSLContext.load_default_certs = lambda *_: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        ssl.SSLContext.load_default_certs = load  # type: ignore[method-assign]
