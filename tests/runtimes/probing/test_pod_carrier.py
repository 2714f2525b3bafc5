"""Probe pods: what their events say, and with how many requests they are followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from moorage.api.errors import NotFoundError
from moorage.runtimes.probing.carrier import ProbeRefusedError
from moorage.runtimes.probing.pod_carrier import PodProbe, is_refusal
from moorage.wire.client.resources import EVENTS, PODS, Resource
from moorage.wire.client.rest import Client, WatchEvent
from tests.clocks import FakeClock, settle
from tests.controllers.memory import MemoryClient


@pytest.mark.parametrize(
    ("reason", "message", "refuses"),
    [
        ("FailedCreatePodSandBox", "rpc error: code = Unknown desc = OCI runtime create", True),
        ("FailedCreatePodSandBox", "rpc error: code = Unavailable desc = shim is busy", True),
        (
            "FailedCreatePodSandBox",
            "rpc error: code = Unavailable desc = connection error: desc = dial unix /run/c.sock",
            False,
        ),
        (
            "FailedCreatePodSandBox",
            "rpc error: code = Unavailable desc = error reading from server: EOF",
            False,
        ),
        (
            "FailedCreatePodSandBox",
            'RuntimeClass.node.k8s.io: runtimeclass.node.k8s.io "moorage-probe-x.n" not found',
            False,
        ),
        ("RuntimeHandlerUnknown", "there is no handler x", True),
        ("Pulled", "rpc error", False),
    ],
)
def test_a_kubelet_that_does_not_reach_its_engine_refuses_nothing(
    reason: str, message: str, refuses: bool
) -> None:
    assert is_refusal(reason, message) == refuses


class _WatchedClient(MemoryClient):
    """Counts its watches."""

    def __init__(self) -> None:
        super().__init__(FakeClock())
        self.watches: list[str] = []

    async def watch(
        self, resource: Resource[Any], *_: Any, **more: Any
    ) -> AsyncIterator[WatchEvent[Any]]:
        self.watches.append(resource.plural)
        async for event in super().watch(resource, **more):
            yield event


def _pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "status": status}


def _event(name: str, uid: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "uid": uid}, **more}


def _in_state(**state: Any) -> dict[str, Any]:
    return _pod(containerStatuses=[{"name": "probe", "state": state}])


@pytest.fixture
def client() -> _WatchedClient:
    client = _WatchedClient()
    client.put(PODS, _pod())
    return client


def _probe(client: _WatchedClient) -> PodProbe:
    present = client.typed(PODS, _pod())
    return PodProbe(cast(Client, client), present, 0.0)


async def test_a_pod_is_followed_by_one_watch_however_often_it_changes(
    client: _WatchedClient,
) -> None:
    starting = asyncio.ensure_future(_probe(client).wait_started())
    await settle()
    for number in range(10):
        client.put(PODS, _in_state(waiting={"reason": "ContainerCreating", "message": f"{number}"}))
        client.put(EVENTS, _event(f"e{number}", "u", reason="Pulling"))
        await settle()
    assert not starting.done()
    client.put(PODS, _in_state(running={}))
    await starting
    assert sorted(client.watches) == ["events", "pods"]
    assert len(client.asked("get", PODS)) == 1


async def test_a_refusal_and_a_deletion_are_seen_in_the_watch(client: _WatchedClient) -> None:
    starting = asyncio.ensure_future(_probe(client).wait_started())
    await settle()
    refusal = {"reason": "RuntimeHandlerUnknown", "message": "no such handler"}
    client.put(EVENTS, _event("other", "v", reason=refusal["reason"], message="of another pod"))
    client.put(PODS, _pod(phase="Failed") | {"metadata": {"name": "q", "uid": "v"}})
    await settle()
    assert not starting.done()
    client.put(EVENTS, _event("e", "u", **refusal))
    with pytest.raises(ProbeRefusedError) as raised:
        await starting
    assert raised.value.result.error == "no such handler"
    client.drop(EVENTS, "e")
    starting = asyncio.ensure_future(_probe(client).wait_started())
    await settle()
    client.drop(PODS, "p")
    with pytest.raises(NotFoundError):
        await starting
