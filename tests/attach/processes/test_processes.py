"""Parts alone: how they reach the API server of a kubeconfig."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from moorage.apiserver.server.lifecycle import ApiServer
from moorage.attach.processes import controllers, scheduler, webhook
from moorage.attach.processes.connection import ApiUnusableError, connected_to
from moorage.attach.webhook import WebhookOptions
from moorage.cluster.access.identities import Subject
from moorage.cluster.access.kubeconfig import Access, write
from moorage.controllers import ControllerOptions
from moorage.scheduler import SchedulerOptions
from moorage.wire.client.config import ClientConfig, load_kubeconfig
from moorage.wire.client.resources import NODES, PODS, SERVICE_ACCOUNTS
from moorage.wire.client.rest import Client
from tests.apiserver.options import loopback_options
from tests.authorities import prepared_authority
from tests.controllers.cluster import Cluster
from tests.ports import free_port
from tests.wire.client.fake_api import answer, refusal, running


async def reach(client: Client) -> None:
    async with connected_to(ClientConfig(client.server), "test", retry_s=0):
        return


async def test_a_server_that_is_not_ready_is_waited_for() -> None:
    async with running() as (api, client):
        api.failures += [refusal(500, "InternalError", "etcd"), answer({})]
        await reach(client)
        assert not api.failures


@pytest.mark.parametrize(("code", "reason"), [(401, "Unauthorized"), (403, "Forbidden")])
async def test_a_user_that_is_refused_is_reported_at_once(code: int, reason: str) -> None:
    async with running() as (api, client):
        api.failures.append(refusal(code, reason, "no"))
        with pytest.raises(ApiUnusableError, match="refuses the kubeconfig's user: no"):
            await reach(client)


async def test_the_wait_has_an_end() -> None:
    config = ClientConfig(f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ApiUnusableError, match="is not ready after"):
        async with connected_to(config, "test", first_answer_s=0.05):
            pass


async def test_a_patient_part_outlasts_an_api_server_that_is_away() -> None:
    async with running() as (api, client):
        api.failures += [*[refusal(500, "InternalError", "etcd")] * 5, answer({})]
        config = ClientConfig(client.server)
        times: dict[str, Any] = {"first_answer_s": 0.0, "retry_s": 0.0}
        async with connected_to(config, "test", is_patient=True, **times):
            assert not api.failures


async def answers(url: str) -> int:
    """Return the status of a part's answer, once it listens."""
    tls = ssl._create_unverified_context()
    async with aiohttp.ClientSession() as session, asyncio.timeout(20):
        while True:
            with contextlib.suppress(aiohttp.ClientConnectorError):
                async with session.get(url, ssl=tls) as answered:
                    return answered.status
            await asyncio.sleep(0.01)


async def test_controllers_answer_probes_while_the_api_server_is_away() -> None:
    away, health = ClientConfig(f"http://127.0.0.1:{free_port()}"), free_port()
    reached: list[str] = []
    options = ControllerOptions(cluster_ca="")
    runtimes = controllers.RuntimesOptions(health_port=health)
    part = asyncio.create_task(
        controllers.run_own_group(away, options, runtimes, lambda: reached.append("controllers"))
    )
    try:
        assert await answers(f"http://127.0.0.1:{health}/healthz") == 200
        assert not part.done()
        assert reached == []
    finally:
        part.cancel()
        await asyncio.gather(part, return_exceptions=True)


async def test_a_webhook_answers_probes_while_the_api_server_is_away(tmp_path: Path) -> None:
    away, port = ClientConfig(f"http://127.0.0.1:{free_port()}"), free_port()
    authority = prepared_authority(tmp_path / "pki")
    pair = authority.issue("webhook", Subject("webhook", hosts=("127.0.0.1",)))
    options = WebhookOptions(pair.certificate, pair.key, "127.0.0.1", port)
    part = asyncio.create_task(webhook.run(away, options, lambda: None))
    try:
        assert await answers(f"https://127.0.0.1:{port}/livez") == 200
        assert await answers(f"https://127.0.0.1:{port}/readyz") == 503
    finally:
        part.cancel()
        await asyncio.gather(part, return_exceptions=True)


async def test_a_certificate_that_cannot_be_used_is_reported() -> None:
    config = ClientConfig("https://127.0.0.1:1", certificate=b"no", key=b"no")
    with pytest.raises(ApiUnusableError, match="certificate or key cannot be used"):
        async with connected_to(config, "test"):
            pass


async def test_controllers_and_scheduler_work_on_a_server_that_a_kubeconfig_names(
    tmp_path: Path,
) -> None:
    authority = prepared_authority(tmp_path / "pki")
    admin = authority.issue("admin", Subject("kubernetes-admin", "system:masters"))
    server_options, api_options = loopback_options(tmp_path, authority, free_port())
    access = Access("c", api_options.public_url, authority.pair.certificate, admin)
    write(tmp_path / "kubeconfig", access)
    config = load_kubeconfig(tmp_path / "kubeconfig")
    reached: list[str] = []
    options = ControllerOptions(cluster_ca=authority.pair.certificate.read_text())
    async with ApiServer(server_options, api_options), Client(config, user_agent="test") as client:
        parts = [
            asyncio.create_task(
                controllers.run(config, options, lambda: reached.append("controllers"))
            ),
            asyncio.create_task(
                scheduler.run(config, SchedulerOptions(), lambda: reached.append("scheduler"))
            ),
        ]
        try:
            cluster = Cluster(client)
            await cluster.until(SERVICE_ACCOUNTS, lambda accounts: len(accounts) >= 4)
            ready = [{"type": "Ready", "status": "True"}]
            size = {"cpu": "1", "memory": "1Gi", "pods": "10"}
            await client.create(NODES, {"metadata": {"name": "n1"}})
            await cluster.status(NODES, "n1", {"allocatable": size, "conditions": ready})
            pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
            await client.create(PODS, pod, "default")
            await cluster.until(PODS, lambda pods: [pod.spec.node_name for pod in pods] == ["n1"])
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
    assert sorted(reached) == ["controllers", "scheduler"]
