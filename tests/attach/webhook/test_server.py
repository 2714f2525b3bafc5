"""The webhook behind an API server whose own plugin for these policies is disabled."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import shutil
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from moorage.api.clock import SystemClock
from moorage.apiserver.admission.configuration import AdmissionOptions
from moorage.attach.webhook import InformedFacts, Reviewer, WebhookOptions, serve_webhook
from moorage.cluster.access.certificates import Authority, Subject
from moorage.runtimes.custom_resources import install_definitions, wait_installed
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.rest import Client
from moorage.wire.serving import ServedCertificate
from tests.apiserver.running_server import Running, serving
from tests.apiserver.webhook_server import MUTATING, VALIDATING

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[3]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PODS = "/api/v1/namespaces/default/pods"
CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
PROFILES = "/apis/runtime.moorage.dev/v1alpha1/runtimeprofiles"
POLICIES = "/apis/runtime.moorage.dev/v1alpha1/clusterruntimepolicies"
Json = dict[str, Any]


class Webhook:
    """A webhook that runs in this process."""

    def __init__(self, authority: Authority) -> None:
        self.pair = authority.issue("hook", Subject("hook", hosts=("127.0.0.1",)))
        self.port = 0
        self.is_ready = True
        self.is_stopping = False
        self._bundle = base64.b64encode(authority.pair.certificate.read_bytes()).decode()

    def configuration(self, path: str) -> Json:
        rules = [
            {
                "operations": ["CREATE", "UPDATE"],
                "apiGroups": ["", "apps", "runtime.moorage.dev"],
                "apiVersions": ["*"],
                "resources": ["pods", "deployments", "clusterruntimepolicies"],
            }
        ]
        client = {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": self._bundle}
        hook = {
            "name": "runtime.moorage.dev",
            "clientConfig": client,
            "rules": rules,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }
        return {"metadata": {"name": "moorage"}, "webhooks": [hook]}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    options = AdmissionOptions(disabled=frozenset({"RuntimePolicy", "RuntimePolicyWrites"}))
    async with serving(tmp_path, runs=True, admission=options) as running:
        await running.ask(
            "POST",
            "/api/v1/namespaces/default/serviceaccounts",
            {"metadata": {"name": "default"}},
        )
        yield running


def _client(server: Running, subject: Subject) -> Client:
    pair = server.authority.issue(subject.name, subject)
    config = ClientConfig(
        server=server.url,
        ca=server.authority.pair.certificate.read_bytes(),
        certificate=pair.certificate.read_bytes(),
        key=pair.key.read_bytes(),
    )
    return Client(config, user_agent="test")


async def _grant_documented_rights(server: Running) -> None:
    """Give the webhook's user the role of its page, and no other."""
    text = (REPOSITORY / "docs/how-to/parts-of-kubernetes.md").read_text()
    documents = [
        document
        for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
        for document in yaml.safe_load_all(block)
    ]
    granted = [one for one in documents if one["metadata"]["name"] == "moorage-webhook"]
    for one, plural in zip(granted, ("clusterroles", "clusterrolebindings"), strict=True):
        assert (await server.ask("POST", f"{RBAC}/{plural}", one)).status == 201


@contextlib.asynccontextmanager
async def running_webhook(webhook: Webhook, facts: Any) -> AsyncIterator[None]:
    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        serve_webhook(
            Reviewer(facts),
            WebhookOptions(webhook.pair.certificate, webhook.pair.key, "127.0.0.1", 0),
            SystemClock(),
            is_ready=lambda: webhook.is_ready,
            knows=facts.knows,
            started=started.set_result,
            is_stopping=lambda: webhook.is_stopping,
        )
    )
    try:
        webhook.port = await started
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def webhook(server: Running) -> AsyncIterator[Webhook]:
    async with _client(server, Subject("kubernetes-admin", "system:masters")) as admin:
        await install_definitions(admin)
    await _grant_documented_rights(server)
    webhook = Webhook(server.authority)
    clock = SystemClock()
    async with _client(server, Subject("moorage-webhook")) as client:
        await client.request("GET", "/readyz")
        await wait_installed(client, clock)
        facts = InformedFacts(client, clock)
        following = asyncio.create_task(facts.run())
        await facts.wait_synced()
        async with running_webhook(webhook, facts):
            yield webhook
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def pod(name: str, annotations: Json | None = None, **spec: Any) -> Json:
    containers = [{"name": "c", "image": "i"}]
    metadata = {"name": name, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"containers": containers, **spec}}


async def _make_runtime(server: Running, handler: str, isolation: str) -> None:
    """A node with a handler that probes found working, and its class with an overhead."""
    node = {"metadata": {"name": f"n-{handler}"}}
    assert (await server.ask("POST", "/api/v1/nodes", node)).status == 201
    status = {
        "status": {
            "runtimeHandlers": [{"name": handler}],
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        }
    }
    patch = {"Content_Type": "application/merge-patch+json"}
    path = f"/api/v1/nodes/n-{handler}/status"
    assert (await server.ask("PATCH", path, status, **patch)).status == 200
    spec = {"nodeName": f"n-{handler}", "handler": handler}
    name = f"n-{handler}.{handler}"
    profile = {
        "apiVersion": "runtime.moorage.dev/v1alpha1",
        "kind": "RuntimeProfile",
        "metadata": {"name": name},
        "spec": spec,
    }
    created = await server.ask("POST", PROFILES, profile)
    assert created.status == 201, created.text
    working = {
        "type": "Working", "status": "True", "reason": "Tested", "message": "tested",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    status = {"status": {"isolation": isolation, "conditions": [working]}}
    patched = await server.ask("PATCH", f"{PROFILES}/{name}/status", status, **patch)
    assert patched.status == 200, patched.text
    runtime_class = {
        "metadata": {"name": handler},
        "handler": handler,
        "overhead": {"podFixed": {"memory": "32Mi"}},
    }
    assert (await server.ask("POST", CLASSES, runtime_class)).status == 201


async def _until(server: Running, body: Json, wanted: str) -> Json:
    """Create a pod by dry run until the webhook knows what was written before."""
    async with asyncio.timeout(20):
        while True:
            answer = await server.ask("POST", f"{PODS}?dryRun=All", body)
            if wanted in answer.text:
                result: Json = answer.json
                return result


async def test_pods_are_fitted_refused_and_charged_as_by_our_own_server(
    server: Running, webhook: Webhook
) -> None:
    for where, path in ((MUTATING, "/mutate"), (VALIDATING, "/validate")):
        created = await server.ask("POST", where, webhook.configuration(path))
        assert created.status == 201, created.text
    await _make_runtime(server, "native", "shared-kernel")
    await _make_runtime(server, "boxed", "user-space-kernel")
    needy = pod("needy", {"runtime.moorage.dev/needs": "isolation=kernel"})
    fitted = await _until(server, needy, '"runtimeClassName":"boxed"')
    # The server's own plugin ran again: the class was charged for.
    assert fitted["spec"]["overhead"] == {"memory": "32Mi"}
    assert fitted["metadata"]["annotations"]["runtime.moorage.dev/class-choice"] == "fitted"
    floor = {
        "apiVersion": "runtime.moorage.dev/v1alpha1",
        "kind": "ClusterRuntimePolicy",
        "metadata": {"name": "floor"},
        "spec": {"minimumIsolation": "user-space-kernel", "defaultClassName": "boxed"},
    }
    created = await server.ask("POST", POLICIES, floor)
    assert created.status == 201, created.text
    await _until(server, pod("plain"), '"runtimeClassName":"boxed"')
    weak = await server.ask("POST", PODS, pod("weak", runtimeClassName="native"))
    assert weak.status == 403
    assert weak.json["message"].startswith(
        'admission webhook "runtime.moorage.dev" denied the request: '
    )
    assert "sets the floor user-space-kernel" in weak.json["message"]
    assert "classes that would pass: boxed" in weak.json["message"]
    floor["spec"] = {"needs": ["nonsense"]}
    floor["metadata"]["name"] = "bad"  # type: ignore[index]
    bad = await server.ask("POST", POLICIES, floor)
    assert bad.status == 422, bad.text
    # Deleted objects no longer count.
    assert (await server.ask("DELETE", f"{POLICIES}/floor")).status == 200
    await _until(server, pod("weak", runtimeClassName="native"), '"runtimeClassName":"native"')


async def _ask(
    webhook: Webhook, path: str, body: bytes | None = None, method: str = "", **more: Any
) -> tuple[int, str]:
    url = f"https://127.0.0.1:{webhook.port}{path}"
    method = method or ("GET" if body is None else "POST")
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, data=body, ssl=False, **more) as answer,
    ):
        return answer.status, await answer.text()


def _review(namespace: str, obj: Json) -> bytes:
    asked = {
        "uid": "u",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE",
        "namespace": namespace,
        "object": obj,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    return json.dumps(body).encode()


async def test_a_pod_of_a_namespace_that_has_just_been_created_is_below_its_floor(
    server: Running, webhook: Webhook
) -> None:
    await _make_runtime(server, "native", "shared-kernel")
    floor = {
        "apiVersion": "runtime.moorage.dev/v1alpha1",
        "kind": "ClusterRuntimePolicy",
        "metadata": {"name": "floor"},
        "spec": {
            "minimumIsolation": "user-space-kernel",
            "namespaceSelector": {"matchLabels": {"tier": "restricted"}},
        },
    }
    assert (await server.ask("POST", POLICIES, floor)).status == 201

    async def is_refused(namespace: str) -> bool:
        weak = pod("weak", runtimeClassName="native")
        status, text = await _ask(webhook, "/validate", _review(namespace, weak))
        assert status == 200, text
        return not json.loads(text)["response"]["allowed"]

    def labelled(name: str) -> Json:
        return {"metadata": {"name": name, "labels": {"tier": "restricted"}}}

    assert (await server.ask("POST", "/api/v1/namespaces", labelled("first"))).status == 201
    async with asyncio.timeout(20):
        while not await is_refused("first"):
            continue
    for number in range(10):
        name = f"new-{number}"
        # The review may come before the watch's event.
        asked = asyncio.create_task(is_refused(name))
        await asyncio.sleep(0)
        assert (await server.ask("POST", "/api/v1/namespaces", labelled(name))).status == 201
        assert await asked


async def test_a_write_in_an_unknown_namespace_is_refused(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorage.attach.webhook.informed_facts._NAMESPACE_S", 0.01)
    status, text = await _ask(webhook, "/mutate", _review("nowhere", pod("p")))
    response = json.loads(text)["response"]
    assert (status, response["uid"], response["allowed"]) == (200, "u", False)
    assert response["status"]["message"] == "namespace nowhere is not known yet; try again"
    assert response["status"]["code"] == 503


async def test_an_object_of_very_many_values_is_refused_before_it_is_read(
    webhook: Webhook,
) -> None:
    huge = pod("p", tolerations=[{}] * 300_000)
    status, text = await _ask(webhook, "/mutate", _review("default", huge))
    response = json.loads(text)["response"]
    assert (status, response["allowed"], response["status"]["code"]) == (200, False, 413)


async def test_one_address_cannot_hold_all_that_the_webhook_reads(webhook: Webhook) -> None:
    context = ssl._create_unverified_context()
    head = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    writers = []
    for _ in range(3):
        _, writer = await asyncio.open_connection(
            "127.0.0.1", webhook.port, ssl=context, local_addr=("127.0.0.3", 0)
        )
        writer.write(head % (8 * 1024 * 1024) + b"{")
        writers.append(writer)
    reader, last = await asyncio.open_connection(
        "127.0.0.1", webhook.port, ssl=context, local_addr=("127.0.0.3", 0)
    )
    async with asyncio.timeout(10):
        answered = b""
        while b"429" not in answered:
            last.write(head % 100)
            answered = await reader.readline()
    status, text = await _ask(webhook, "/mutate", _review("default", pod("p")))
    assert (status, json.loads(text)["response"]["allowed"]) == (200, True)
    for writer in (*writers, last):
        writer.close()


async def test_requests_that_are_no_reviews_are_refused(webhook: Webhook) -> None:
    assert await _ask(webhook, "/healthz") == (200, "ok\n")
    assert await _ask(webhook, "/readyz") == (200, "ok\n")
    assert (await _ask(webhook, "/mutate"))[0] == 405
    assert (await _ask(webhook, "/other"))[0] == 404
    assert (await _ask(webhook, "/mutate", b"{}"))[0] == 400
    assert (await _ask(webhook, "/mutate", b"x" * (8 * 1024 * 1024 + 1)))[0] == 413

    async def chunks() -> AsyncIterator[bytes]:
        yield b"{}"

    assert (await _ask(webhook, "/mutate", chunks(), "POST"))[0] == 413  # type: ignore[arg-type]
    webhook.is_ready = False
    assert (await _ask(webhook, "/readyz"))[0] == 503
    assert (await _ask(webhook, "/validate", b"{}"))[0] == 503
    assert (await _ask(webhook, "/livez"))[0] == 200


async def test_a_certificate_that_is_replaced_is_used(tmp_path: Path) -> None:
    authority = Authority(tmp_path, datetime.now(UTC))
    used, other = (
        authority.issue(name, Subject(name, hosts=("127.0.0.1",))) for name in ("used", "other")
    )
    certificate = ServedCertificate(used.certificate, used.key)
    listening = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=certificate.context
    )
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        before = await _shown(port)
        # Half-written, missing, and of another key: the one before stays in use.
        used.certificate.write_bytes(b"half")
        certificate.reload()
        assert await _shown(port) == before
        used.certificate.unlink()
        certificate.reload()
        shutil.copy(other.certificate, used.certificate)
        certificate.reload()
        assert await _shown(port) == before
        shutil.copy(other.key, used.key)
        certificate.reload()
        assert await _shown(port) != before


async def _shown(port: int) -> bytes:
    context = ssl._create_unverified_context()
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return shown
    finally:
        writer.close()


async def test_a_webhook_that_stops_is_not_ready_and_still_answers(webhook: Webhook) -> None:
    webhook.is_stopping = True
    assert await _ask(webhook, "/readyz") == (503, "stopping\n")
    assert (await _ask(webhook, "/livez"))[0] == 200
    status, text = await _ask(webhook, "/mutate", _review("default", pod("p")))
    assert (status, json.loads(text)["response"]["allowed"]) == (200, True)
