"""Port-forward over a websocket: what a port sends until its end.

Each message begins with its channel: 0 for data, 1 for errors; the first message of each channel is
the port's number. Source: kubelet `portforward/websocket.go`, protocol `v4.channel.k8s.io`.
"""

from __future__ import annotations

import aiohttp

from moorage.runtimes.probing.carrier import OUTPUT_LIMIT_BYTES

PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1


async def read_port(websocket: aiohttp.ClientWebSocketResponse) -> tuple[str, str]:
    """Return the data and the errors that arrive until the end, or until the first line of data."""
    received = {_DATA: bytearray(), _ERROR: bytearray()}
    named: set[int] = set()
    async for message in websocket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel not in received:
            continue
        if channel not in named:
            named.add(channel)
            continue
        received[channel] += data
        if b"\n" in received[_DATA] or len(received[channel]) > OUTPUT_LIMIT_BYTES:
            break
    return (
        bytes(received[_DATA][:OUTPUT_LIMIT_BYTES]).decode(errors="replace"),
        bytes(received[_ERROR][:OUTPUT_LIMIT_BYTES]).decode(errors="replace"),
    )
