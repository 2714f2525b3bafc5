"""Kept directories: on which nodes an agent's directory stays, with what the agent wrote of it."""

from __future__ import annotations

import asyncio

from moorage.api.conditions import is_ready
from moorage.api.errors import StatusError
from moorage.api.pods import Pod
from moorage.api.printable import printable
from moorage.attach.detach_options import Leftover
from moorage.attach.manifests.identity import COMPONENT_LABEL, OURS, RUNTIME_AGENT
from moorage.attach.manifests.runtime_agent import DATA_DIRECTORY
from moorage.wire.client.resources import PODS
from moorage.wire.client.rest import Client, UnreachableError

_MOST_READ = 10
_LINES = "20"
_WARNING = " warning "
_LONGEST = 500
_MOST_BYTES = 1024 * 1024
"""Limit on a log: a node may send any number of bytes for its last lines."""


async def kept_directories(client: Client, namespace: str) -> list[Leftover]:
    """Return the files that stay on nodes whose agents should remove them and are not ready.

    Reads the logs of the first ten. Raises StatusError, UnreachableError if pods cannot be listed.
    """
    selector = f"{OURS},{COMPONENT_LABEL}={RUNTIME_AGENT}"
    listed = await client.list(PODS, namespace=namespace, label_selector=selector)
    pods = [pod for pod in listed.items if not is_ready(pod.status.conditions)]
    if not pods:
        return [Leftover(f"{DATA_DIRECTORY} on some nodes", "their agents did not remove it")]
    pods.sort(key=lambda pod: pod.spec.node_name)
    reasons = await asyncio.gather(*(_reason(client, pod) for pod in pods[:_MOST_READ]))
    left = [
        Leftover(
            f"{DATA_DIRECTORY} on node {pod.spec.node_name or '(none)'}",
            f"its agent did not remove it: {reason or 'it did not say why'}",
        )
        for pod, reason in zip(pods, reasons, strict=False)
    ]
    if more := len(pods) - len(left):
        left.append(Leftover(f"{DATA_DIRECTORY} on {more} nodes more", "the same may hold there"))
    return left


async def _reason(client: Client, pod: Pod) -> str:
    """Return the last lines of the agent's log, empty if it cannot be read."""
    path = PODS.path(pod.metadata.namespace, pod.metadata.name, "log")
    try:
        body = await client.request(
            "GET", path, query={"tailLines": _LINES}, accept="*/*", most_bytes=_MOST_BYTES
        )
    except (StatusError, UnreachableError) as error:
        return f"its log cannot be read: {error}"
    return reason_of_log(body.decode(errors="replace"))


def reason_of_log(text: str) -> str:
    """Return the last warning of a log, else its last line, on one line and not too long.

    A line is that of `api/logs.py`: time, level, logger, text and fields.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    warnings = [line for line in lines if _WARNING in line]
    last = (warnings or lines or [""])[-1]
    _, is_warning, rest = last.partition(_WARNING)
    return printable((rest.partition(" ")[2] if is_warning else last).strip()[:_LONGEST])
