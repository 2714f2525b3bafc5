"""A controller of a kind that the server may lack."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from moorage.api.errors import NotFoundError
from moorage.wire.client.resources import CLUSTER_TRUST_BUNDLES
from moorage.wire.client.rest import UnreachableError
from moorage.wire.client.served import run_when_served
from tests.clocks import FakeClock, settle
from tests.controllers.memory import MemoryClient

DOCUMENT = ("GET", "/apis/certificates.k8s.io/v1")


def serving(*names: str) -> bytes:
    return json.dumps({"resources": [{"name": name} for name in names]}).encode()


async def test_it_runs_once_the_server_has_the_kind() -> None:
    clock = FakeClock()
    client: Any = MemoryClient(clock)
    client.answers[DOCUMENT] = NotFoundError("no such version")
    runs: list[str] = []

    async def run() -> None:
        runs.append("runs")

    waiting = asyncio.ensure_future(run_when_served(client, CLUSTER_TRUST_BUNDLES, clock, run))
    await settle()
    client.answers[DOCUMENT] = serving("certificatesigningrequests")
    clock.advance(60)
    await settle()
    client.answers[DOCUMENT] = UnreachableError("gone for a moment")
    clock.advance(60)
    await settle()
    client.answers[DOCUMENT] = serving("certificatesigningrequests", "clustertrustbundles")
    assert not runs
    clock.advance(1)
    await waiting
    assert runs == ["runs"]


async def test_it_asks_again_soon_after_the_start() -> None:
    clock = FakeClock()
    client: Any = MemoryClient(clock)
    client.answers[DOCUMENT] = NotFoundError("no such version")
    runs: list[str] = []

    async def run() -> None:
        runs.append("runs")

    waiting = asyncio.ensure_future(run_when_served(client, CLUSTER_TRUST_BUNDLES, clock, run))
    await settle()
    client.answers[DOCUMENT] = serving("clustertrustbundles")
    clock.advance(1.2)
    await waiting
    assert runs == ["runs"]
