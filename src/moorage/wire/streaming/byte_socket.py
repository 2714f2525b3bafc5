"""Byte stream websocket: carries one byte stream to the client, such as a log.

    "", binary.k8s.io       binary messages, the bytes
    base64.binary.k8s.io    text messages, each base64 of its own bytes

The first message is empty, so that a client sees that the stream is open. The client's messages are
ignored; its close ends the stream, and so does a message of more than 4 KiB. Source:
`k8s.io/streaming` `httpstream/wsstream` (`Reader`).
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterable, Iterable

from aiohttp import WSCloseCode, web

from moorage.wire.streaming.channel_socket import accept, next_message
from moorage.wire.streaming.race import first_to_end

BINARY = "binary.k8s.io"
BASE64 = "base64.binary.k8s.io"
UNNAMED = ""
PROTOCOLS = (UNNAMED, BINARY, BASE64)

_CHUNK_BYTES = 32 * 1024
# Ignored messages need little buffer.
_LARGEST_IGNORED_BYTES = 4 * 1024
# RFC 6455 §5.5: a control frame has at most 125 bytes, two of which are the code.
_REASON_BYTES = 123


class BrokenStreamError(Exception):
    """The source of the stream failed. The message is sent to the client as the close reason."""


def chosen_protocol(offered: Iterable[str]) -> str | None:
    """Return the first offered subprotocol that is supported.

    Returns UNNAMED if none is offered, and None if no offered one is supported.
    """
    names = tuple(offered) or (UNNAMED,)
    return next((name for name in names if name in PROTOCOLS), None)


async def send_bytes(
    request: web.BaseRequest, protocol: str, pieces: AsyncIterable[bytes]
) -> web.WebSocketResponse:
    """Accept the upgrade in `protocol` and send the chunks until their end or the client's close.

    Returns the closed websocket. When `pieces` raises BrokenStreamError, the websocket is closed
    with code 1011 and the first 123 bytes of the message. Raises OSError if the client disconnects
    without a close.
    """
    websocket = await accept(request, protocol, largest_bytes=_LARGEST_IGNORED_BYTES)

    async def send(data: bytes) -> None:
        if protocol == BASE64:
            await websocket.send_str(base64.b64encode(data).decode())
        else:
            await websocket.send_bytes(data)

    async def copy() -> None:
        await send(b"")
        async for piece in pieces:
            for start in range(0, len(piece), _CHUNK_BYTES):
                await send(piece[start : start + _CHUNK_BYTES])

    async def until_closed() -> None:
        while await next_message(websocket) is not None:
            pass

    try:
        await first_to_end(copy(), until_closed())
    except BrokenStreamError as error:
        # Cut between characters: a close reason that is not UTF-8 breaks the frame.
        reason = str(error).encode()[:_REASON_BYTES].decode(errors="ignore").encode()
        await websocket.close(code=WSCloseCode.INTERNAL_ERROR, message=reason)
    else:
        await websocket.close()
    return websocket
