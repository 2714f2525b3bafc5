"""Runtime tables of a containerd configuration, from the handlers discovered on a host."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from moorage.engine.handlers.discovery import Handler
from moorage.engine.handlers.runtimes import KNOWN_RUNTIMES
from tests.containerd_configuration import RUNC_SHIM, RuntimeTable

_RUNTIMES = {runtime.name: runtime for runtime in KNOWN_RUNTIMES}


class NoHandlerError(Exception):
    """No runtime on this host can run pods; the text lists each reason and its remedy."""

    def __init__(self, handlers: Iterable[Handler]) -> None:
        reasons = {
            f"{handler.runtime}: {handler.reason} ({handler.remedy})" for handler in handlers
        }
        super().__init__("no container runtime works here: " + "; ".join(sorted(reasons)))


def runtime_tables(handlers: Iterable[Handler], root: Path) -> tuple[RuntimeTable, ...]:
    """Return a table per available handler.

    `root` is the parent of the runtimes' state directories.
    """
    return tuple(_table(handler, root) for handler in handlers if handler.available)


def default_handler(handlers: Iterable[Handler]) -> str:
    """Return the handler of pods without a RuntimeClass: the first available default candidate.

    Raises NoHandlerError when no candidate is available.
    """
    listed = tuple(handlers)
    candidates = [
        runtime_handler
        for runtime_handler in listed
        if _RUNTIMES[runtime_handler.runtime].can_be_default
    ]
    for handler in candidates:
        if handler.available:
            return handler.handler
    raise NoHandlerError(candidates)


def _table(handler: Handler, root: Path) -> RuntimeTable:
    runtime = _RUNTIMES[handler.runtime]
    has_runc_shim = runtime.shim_type == RUNC_SHIM
    return RuntimeTable(
        handler=handler.handler,
        shim_type=runtime.shim_type,
        program=Path(handler.path) if has_runc_shim else None,
        # Runtimes of one kind may share a directory; different ones cannot read each other's state.
        root=root / runtime.name if has_runc_shim else None,
        configuration=Path(handler.configuration) if handler.configuration else None,
    )
