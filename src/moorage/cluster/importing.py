"""Import of a program's modules: the largest share of a command, and of a part's start.

Nothing that is imported becomes garbage, so the collector does not run meanwhile. When aiohttp is
imported, it loads all the authorities of the system twice, for sessions without a TLS context of
their own, with and without verification. Each session here has one, so these are not loaded, which
saves a fifth of what importing it takes, and 2 MiB.
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
    # Of the base class; load_default_certs calls it too.
    ssl.SSLContext.set_default_verify_paths = _load_nothing  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        del ssl.SSLContext.set_default_verify_paths


def _load_nothing(context: ssl.SSLContext) -> None:
    del context
