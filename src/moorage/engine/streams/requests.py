"""Streaming requests: their paths at the endpoint, and their validation.

Source: CRI `ExecRequest`, `AttachRequest`, `PortForwardRequest`; containerd's and CRI-O's checks.
"""

from __future__ import annotations

from moorage.engine.errors import InvalidError
from moorage.wire.cri import pb

StreamRequest = pb.ExecRequest | pb.AttachRequest | pb.PortForwardRequest

_LARGEST_PORT = 65535


def path_of(request: StreamRequest) -> str:
    """Return the first path segment of a request's URL: exec, attach or portforward."""
    if isinstance(request, pb.ExecRequest):
        return "exec"
    return "attach" if isinstance(request, pb.AttachRequest) else "portforward"


def check(request: StreamRequest) -> None:
    """Validate a request. Raises InvalidError, which names the container and the fields."""
    if isinstance(request, pb.PortForwardRequest):
        wrong = [port for port in request.port if not 0 < port <= _LARGEST_PORT]
        if wrong:
            raise InvalidError(f"port forward: {wrong[0]} is not a port (1 to {_LARGEST_PORT})")
        return
    subject = f"{path_of(request)} in container {request.container_id}"
    if not (request.stdin or request.stdout or request.stderr):
        raise InvalidError(f"{subject}: one of stdin, stdout and stderr must be set")
    if request.tty and request.stderr:
        raise InvalidError(f"{subject}: tty and stderr cannot both be set")
