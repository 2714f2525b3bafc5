"""Streaming requests: their paths at the endpoint, and their validation.

Source: CRI `ExecRequest`, `AttachRequest`, `PortForwardRequest`; containerd's and CRI-O's checks.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from moorage.api.clock import Clock
from moorage.engine.errors import ExhaustedError, InvalidError
from moorage.engine.handlers.adapters import ExecProcess, Streams
from moorage.wire.cri import pb
from moorage.wire.streaming.connection import Connection

# Target protocol: the operations of the engine that the streaming endpoint calls.


class Target(Protocol):
    """Starts and connects to processes. Safe for concurrent use.

    Every method raises EngineError and AdapterError.
    """

    async def exec(self, request: pb.ExecRequest) -> ExecProcess:
        """Start the requested process."""

    async def attach(self, request: pb.AttachRequest) -> Streams:
        """Return the streams of the container's first process."""

    async def dial(self, sandbox_id: str, port: int) -> Connection:
        """Connect to a port inside the pod. Raises OSError when nothing listens there."""


# Streaming protocol versions, and their negotiation with a client.
#
# Versions differ in their channels and in the encoding of the outcome. Source:
# apimachinery `remotecommand` and `portforward` constants, KEP-4006.

V5, V4, V3 = "v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io"
V2, V1 = "v2.channel.k8s.io", "channel.k8s.io"
BASE64_V4, BASE64_V1 = "v4.base64.channel.k8s.io", "base64.channel.k8s.io"
PORT_FORWARD = "portforward.k8s.io"
UNNAMED = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A protocol version.

    `has_resize`: there is a channel for terminal sizes. `has_json_status`: the outcome is a Status
    object. `is_base64`: messages are base64 text. `can_end`: a client can close a single channel of
    a websocket.
    """

    name: str
    has_resize: bool = True
    has_json_status: bool = False
    is_base64: bool = False
    can_end: bool = False


# The last version of each tuple applies to clients that offer none.
SPDY_COMMAND = (
    Dialect(name=V4, has_json_status=True),
    Dialect(name=V3),
    Dialect(name=V2, has_resize=False),
    Dialect(name=V1, has_resize=False),
)
SPDY_PORT_FORWARD = (Dialect(name=PORT_FORWARD),)
SOCKET_COMMAND = (
    Dialect(name=V5, has_json_status=True, can_end=True),
    Dialect(name=V4, has_json_status=True),
    Dialect(name=BASE64_V4, has_json_status=True, is_base64=True),
    Dialect(name=V1),
    Dialect(name=BASE64_V1, is_base64=True),
    Dialect(name=UNNAMED),
)
SOCKET_PORT_FORWARD = (
    Dialect(name=V4),
    Dialect(name=BASE64_V4, is_base64=True),
    Dialect(name=UNNAMED),
)


def choose(offered: Sequence[str], spoken: Sequence[Dialect]) -> Dialect | None:
    """Return the first offered version that is supported, None if there is none.

    Returns the last supported one if none is offered.
    """
    if not offered:
        return spoken[-1]
    by_name = {dialect.name: dialect for dialect in spoken if dialect.name}
    return next((by_name[name] for name in offered if name in by_name), None)


# Stream tokens: random, valid for one use within a minute, each mapped to a request.
#
#     Exec/Attach/PortForward ──issue──▶ token in a URL ──redeem──▶ the request, once
#
# Source: the CRI streaming library's request cache (1 min, 1000 outstanding).

LIFETIME_S = 60.0
LIMIT = 1000
_RANDOM_BYTES = 18

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Held(Generic[T]):
    value: T
    ends_s: float


class Tokens(Generic[T]):
    """Issues and redeems tokens. At most 1000 are outstanding.

    They are stored oldest first: all have the same lifetime, so the first expires first.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: OrderedDict[str, _Held[T]] = OrderedDict()

    def issue(self, value: T) -> str:
        """Issue a token of 24 URL-safe characters.

        Raises ExhaustedError when 1000 are outstanding.
        """
        self._forget_old()
        if len(self._held) >= LIMIT:
            raise ExhaustedError(
                f"{LIMIT} stream requests are pending; connect to them, or retry "
                f"within {LIFETIME_S:.0f} s"
            )
        token = secrets.token_urlsafe(_RANDOM_BYTES)
        self._held[token] = _Held(value, self._clock.monotonic() + LIFETIME_S)
        return token

    def redeem(self, token: str) -> T | None:
        """Invalidate a token and return its request; None for an unknown, used or expired one."""
        self._forget_old()
        entry = self._held.pop(token, None)
        return None if entry is None else entry.value

    def _forget_old(self) -> None:
        now = self._clock.monotonic()
        while self._held and next(iter(self._held.values())).ends_s <= now:
            self._held.popitem(last=False)


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
