"""Carriers for tests: one on an engine of its own, one through the API of a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from moorage.linux.cgroups import current_cgroups
from moorage.runtimes.probing.cri_carrier import CriCarrier
from moorage.runtimes.probing.pod_carrier import PodCarrier
from moorage.wire.client.config import load_kubeconfig
from moorage.wire.client.rest import Client
from moorage.wire.cri import CriClient
from tests.running import RunningCluster

OWNER = "tests"


@asynccontextmanager
async def cri_carrier(endpoint: str, state: Path) -> AsyncIterator[CriCarrier]:
    """A carrier on an engine. Nothing of it is left at the end."""
    async with CriClient(endpoint) as cri:
        carrier = CriCarrier(
            cri,
            owner=OWNER,
            state=state / "probes",
            cgroup_parent="/moorage-tests-probes",
            cgroups=current_cgroups(),
        )
        yield carrier
        assert await carrier.clean() == 0


@asynccontextmanager
async def pod_carrier(cluster: RunningCluster) -> AsyncIterator[PodCarrier]:
    """A carrier on a cluster's node n1."""
    config = load_kubeconfig(cluster.kubeconfig)
    async with Client(config, user_agent="tests") as client:
        carrier = PodCarrier(client, node="n1", owner=OWNER)
        yield carrier
        await carrier.clean()
