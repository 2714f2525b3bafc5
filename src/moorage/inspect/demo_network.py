"""Network in the demo: a sandbox calls a Service by name, and a policy refuses another.

Works through the API, like the rest of the demo, and deletes what it creates.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from moorage.api.conditions import is_ready
from moorage.api.errors import NotFoundError
from moorage.api.meta import Raw
from moorage.api.pods import Pod
from moorage.cluster.errors import ClusterError
from moorage.cluster.images.catalogue import BUSYBOX
from moorage.network.objects import NETWORK_POLICIES
from moorage.wire.client.informer import Informer
from moorage.wire.client.queue import wait_until
from moorage.wire.client.resources import PODS, SERVICES, Resource
from moorage.wire.client.rest import Client

_NAMESPACE = "default"
_SERVER, _FRIEND, _STRANGER = "demo-server", "demo-friend", "demo-stranger"
_GREETING = "hello"
_SERVE = f"while true; do echo {_GREETING} | nc -l -p 8080; done"
_CALL = f"nc -w 5 {_SERVER} 80 2>&1"
_READY_WITHIN_S = 60.0
_DONE = ("Succeeded", "Failed")

Report = Callable[[str], None]


class DemoNetworkError(ClusterError):
    """A pod did not reach a Service by name, or reached one that a policy shuts."""


class NetworkShown(msgspec.Struct, frozen=True):
    """What a pod that may call the Service got, and what one that may not."""

    runtime_class: str
    answer: str
    refusal: str


async def show_network(client: Client, runtime_class: str, report: Report) -> NetworkShown:
    """Have two pods of a class call a Service by name, of which a policy admits one.

    Raises DemoNetworkError, StatusError.
    """
    try:
        await client.create(PODS, _pod(_SERVER, _SERVE), _NAMESPACE)
        await client.create(SERVICES, _service(), _NAMESPACE)
        await client.create(NETWORK_POLICIES, _policy(), _NAMESPACE)
        await _wait(client, _SERVER, lambda pod: is_ready(pod.status.conditions))
        outputs = []
        for name in (_FRIEND, _STRANGER):
            body = _pod(name, _CALL, runtimeClassName=runtime_class, restartPolicy="Never")
            await client.create(PODS, body, _NAMESPACE)
        for name in (_FRIEND, _STRANGER):
            await _wait(client, name, lambda pod: pod.status.phase in _DONE)
            path = f"/api/v1/namespaces/{_NAMESPACE}/pods/{name}/log"
            outputs.append((await client.request("GET", path)).decode(errors="replace").strip())
    finally:
        await asyncio.shield(_delete(client))
    answer, refusal = outputs
    if answer != _GREETING or _GREETING in refusal:
        raise DemoNetworkError(
            f"the pod that may call {_SERVER} got {answer!r}, the other {refusal!r}"
        )
    shown = NetworkShown(runtime_class, answer, refusal)
    report(f"pod {_FRIEND} of class {runtime_class} calls {_SERVER} by name: {answer}")
    report(f"pod {_STRANGER} is refused by NetworkPolicy {_SERVER}: {refusal}")
    return shown


async def _wait(client: Client, name: str, holds: Callable[[Pod], bool]) -> None:
    pods = Informer(client, PODS, namespace=_NAMESPACE, field_selector=f"metadata.name={name}")

    def is_met(found: Iterable[Pod]) -> bool:
        return any(map(holds, found))

    try:
        async with asyncio.timeout(_READY_WITHIN_S):
            await wait_until(pods, is_met)
    except TimeoutError:
        raise DemoNetworkError(f"pod {name} is not done after {_READY_WITHIN_S:g} s") from None


async def _delete(client: Client) -> None:
    """Delete what was created, as far as the demo came."""
    created: tuple[tuple[Resource[Any], str], ...] = (
        *((PODS, name) for name in (_SERVER, _FRIEND, _STRANGER)),
        (SERVICES, _SERVER),
        (NETWORK_POLICIES, _SERVER),
    )
    for resource, name in created:
        with contextlib.suppress(NotFoundError):
            await client.delete(resource, name, _NAMESPACE)


def _pod(name: str, command: str, **spec: str) -> Raw:
    container = {"name": "app", "image": BUSYBOX, "command": ["sh", "-c", command]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"demo": name}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0} | spec,
    }


def _service() -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": _SERVER},
        "spec": {"selector": {"demo": _SERVER}, "ports": [{"port": 80, "targetPort": 8080}]},
    }


def _policy() -> Raw:
    friend = {"podSelector": {"matchLabels": {"demo": _FRIEND}}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": _SERVER},
        "spec": {
            "podSelector": {"matchLabels": {"demo": _SERVER}},
            "ingress": [{"from": [friend]}],
        },
    }
