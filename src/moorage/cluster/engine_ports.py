"""Ports of an external engine, for the rules that keep host ports off them.

The port of its streams (exec, port-forward) is in no CRI call, and often changes at a start; it is
read from the sockets of the process behind the CRI socket.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from moorage.api.host_ports import Listener
from moorage.api.logs import Log
from moorage.linux.listeners import listener_of, tcp_listeners

_INIT = 1

log = Log(__name__)


def engine_process(endpoint: str) -> int | None:
    """Return the engine's process id; None if none answers, or systemd does for it."""
    try:
        pid = listener_of(Path(endpoint.removeprefix("unix://")))
    except OSError as error:
        log.debug("no engine to look at", endpoint=endpoint, reason=error)
        return None
    return pid if pid > _INIT else None


def engine_listeners(pid: int | None, addresses: Sequence[str]) -> tuple[Listener, ...]:
    """Return where the engine listens; `addresses` are the host's, for a wildcard address.

    Empty without root, or when the engine has exited.
    """
    if pid is None:
        return ()
    try:
        listeners = tcp_listeners(pid)
    except OSError as error:
        log.warning("host ports of pods can take the engine's", reason=error)
        return ()
    return tuple(
        Listener("engine", name, port)
        for address, port in listeners
        for name in (addresses if address.is_unspecified else (str(address),))
    )
