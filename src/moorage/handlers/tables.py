"""From the handlers found on a machine to the tables of a containerd's configuration."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from moorage.cri.containerd import RuntimeTable
from moorage.handlers.discovery import Handler
from moorage.handlers.runtimes import KNOWN_RUNTIMES

_RUNTIMES = {runtime.name: runtime for runtime in KNOWN_RUNTIMES}


class NoHandlerError(Exception):
    """No runtime of this machine can run pods; the text lists each reason and its remedy."""

    def __init__(self, handlers: Iterable[Handler]) -> None:
        reasons = {f"{each.runtime}: {each.reason} ({each.remedy})" for each in handlers}
        super().__init__("no container runtime works here: " + "; ".join(sorted(reasons)))


def runtime_tables(handlers: Iterable[Handler], root: Path) -> tuple[RuntimeTable, ...]:
    """One table for each available handler. `root` is where runtimes keep containers' state."""
    return tuple(_table(handler, root) for handler in handlers if handler.available)


def default_handler(handlers: Iterable[Handler]) -> str:
    """The handler of pods that name no class: the first that the known runtimes list for it.

    Raises NoHandlerError when none of them is available.
    """
    listed = tuple(handlers)
    candidates = [each for each in listed if _RUNTIMES[each.runtime].can_be_default]
    for handler in candidates:
        if handler.available:
            return handler.handler
    raise NoHandlerError(candidates)


def _table(handler: Handler, root: Path) -> RuntimeTable:
    runtime = _RUNTIMES[handler.runtime]
    return RuntimeTable(
        handler=handler.handler,
        shim_type=runtime.shim_type,
        program=Path(handler.path) if runtime.uses_runc_shim else None,
        # Runtimes of one kind may share a directory, different ones don't read each other's state.
        root=root / runtime.name if runtime.uses_runc_shim else None,
        configuration=Path(handler.configuration) if handler.configuration else None,
    )
