"""What can be streamed, where in the endpoint's addresses it stands, and what can never work.

Source: CRI `ExecRequest`, `AttachRequest`, `PortForwardRequest`; containerd's and CRI-O's checks.
"""

from __future__ import annotations

from moorage.cri import pb
from moorage.engine.errors import InvalidError

Asked = pb.ExecRequest | pb.AttachRequest | pb.PortForwardRequest

_LARGEST_PORT = 65535


def path_of(asked: Asked) -> str:
    """The first part of the path that a request is reached by."""
    if isinstance(asked, pb.ExecRequest):
        return "exec"
    return "attach" if isinstance(asked, pb.AttachRequest) else "portforward"


def check(asked: Asked) -> None:
    """Raises InvalidError for what can never work."""
    if isinstance(asked, pb.PortForwardRequest):
        wrong = [port for port in asked.port if not 0 < port <= _LARGEST_PORT]
        if wrong:
            raise InvalidError(f"port forward: {wrong[0]} is no port (1 to {_LARGEST_PORT})")
        return
    subject = f"{path_of(asked)} in container {asked.container_id}"
    if not (asked.stdin or asked.stdout or asked.stderr):
        raise InvalidError(f"{subject}: one of stdin, stdout and stderr must be asked for")
    if asked.tty and asked.stderr:
        raise InvalidError(f"{subject}: a terminal has no stderr, ask for tty or for stderr")
