"""Streaming protocol versions, and their negotiation with a client.

Versions differ in their channels and in the encoding of the outcome. Source:
apimachinery `remotecommand` and `portforward` constants, KEP-4006.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
