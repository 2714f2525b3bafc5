"""Exec client: runs a command in a container through the API and collects its output.

Source: KEP-4006, websocket subprotocol `v5.channel.k8s.io`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp
import msgspec

from moorage.wire.client.resources import PODS
from moorage.wire.client.rest import Client

_PROTOCOL = "v5.channel.k8s.io"
_STDOUT, _STDERR, _ERROR = 1, 2, 3
_EXIT_CODE = "ExitCode"


@dataclass(frozen=True, slots=True)
class ExecResult:
    """Output and exit code of a command. `error` is why it could not run, empty otherwise."""

    exit_code: int
    stdout: str
    stderr: str
    error: str = ""


async def exec_in(
    client: Client, namespace: str, pod: str, command: Sequence[str], *, container: str = ""
) -> ExecResult:
    """Run a command in a pod and return its output and exit code. Blocks until it exits.

    An empty `container` selects the API's default. Invalid UTF-8 in the output is replaced. Raises
    StatusError when the API refuses, and UnreachableError when it cannot be reached.
    """
    query = [("command", word) for word in command] + [("stdout", "true"), ("stderr", "true")]
    if container:
        query.append(("container", container))
    path = f"{PODS.path(namespace, pod, 'exec')}?{urlencode(query)}"
    output = {_STDOUT: bytearray(), _STDERR: bytearray(), _ERROR: bytearray()}
    async with client.websocket(path, _PROTOCOL) as websocket:
        async for message in websocket:
            if message.type is aiohttp.WSMsgType.BINARY and message.data:
                output.get(message.data[0], bytearray()).extend(message.data[1:])
    code, error = _ending(bytes(output[_ERROR]))
    return ExecResult(
        code,
        output[_STDOUT].decode(errors="replace"),
        output[_STDERR].decode(errors="replace"),
        error,
    )


def _ending(status: bytes) -> tuple[int, str]:
    """Return the exit code and error of the Status on the error channel.

    Source: `remotecommand.v4`.
    """
    if not status:
        return 1, "the connection ended before the command did"
    try:
        outcome: dict[str, Any] = msgspec.json.decode(status, type=dict[str, Any])
        if outcome.get("status") == "Success":
            return 0, ""
        for cause in (outcome.get("details") or {}).get("causes") or ():
            if cause.get("reason") == _EXIT_CODE:
                return int(cause["message"]), ""
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        return 1, f"the command ended with what is no status: {error}"
    return 1, str(outcome.get("message", ""))
