"""Ports of an external engine, for the rules that keep host ports off them.

No CRI call returns the port of its streams (exec, port-forward), which often changes at a restart;
it is read from the sockets of the process that listens on the CRI socket.
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
    """Return the engine's process ID; None if nothing listens, or systemd does in its place."""
    try:
        pid = listener_of(Path(endpoint.removeprefix("unix://")))
    except OSError as error:
        log.debug("no engine to look at", endpoint=endpoint, reason=error)
        return None
    return pid if pid > _INIT else None


def engine_listeners(pid: int | None, addresses: Sequence[str]) -> tuple[Listener, ...]:
    """Return the engine's TCP listeners; a wildcard address becomes the host's `addresses`.

    Returns none without an engine process, or if its sockets cannot be read: without root, or when
    it has exited. Logs the latter.
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


class EngineProcess:
    """The process of an external engine, and its listeners; looked at every `poll_s`."""

    poll_s = 10.0

    def find(self, endpoint: str) -> int | None:
        return engine_process(endpoint)

    def listeners_of(self, pid: int | None, addresses: tuple[str, ...]) -> tuple[Listener, ...]:
        return engine_listeners(pid, addresses)

    def listeners(self, endpoint: str, node_ip: str) -> tuple[Listener, ...]:
        """Return the engine's listeners on a node, which pods cannot have as host ports.

        None without an endpoint: our own engine's part protects its own port.
        """
        if not endpoint:
            return ()
        return self.listeners_of(self.find(endpoint), ("127.0.0.1", node_ip))
