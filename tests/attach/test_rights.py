"""Rights of webhook and controllers: what they are granted suffices, and all of it is used.

Both run against an API server in this process, as their ServiceAccounts, while everything that they
do comes about. Each decision of the authorizer about them is recorded.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from moorage.api.clock import SystemClock
from moorage.api.errors import AlreadyExistsError
from moorage.api.meta import Raw
from moorage.api.runtime_group import ENFORCE_LABEL, HANDLER_GATE, handler_label, profile_name
from moorage.apiserver.authorization import Authorizer
from moorage.apiserver.registry.rbac import Action
from moorage.attach.manifests import controllers, webhook
from moorage.attach.values import Values
from moorage.attach.webhook import InformedFacts
from moorage.cluster.access.certificates import Subject
from moorage.controllers import ControllerOptions, WebhookService, run_runtimes
from moorage.runtimes.custom_resources import install_definitions, wait_installed
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.leader_election import LeaderElector
from moorage.wire.client.resources import (
    NAMESPACES,
    NODES,
    PODS,
    RUNTIME_CLASS_QUOTAS,
    RUNTIME_CLASSES,
    RUNTIME_INSTALLATIONS,
    RUNTIME_POLICIES,
    RUNTIME_PROFILES,
    RUNTIME_ROLLOUTS,
    SECRETS,
)
from moorage.wire.client.rest import Client, PatchType
from tests.apiserver.running_server import Running, serving

pytestmark = pytest.mark.slow

VALUES = Values()
NAMESPACE = VALUES.namespace
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_PATHS = {
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "Role": f"{_RBAC}/namespaces/NAMESPACE/roles",
    "RoleBinding": f"{_RBAC}/namespaces/NAMESPACE/rolebindings",
    "MutatingWebhookConfiguration":
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration":
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
}  # fmt: skip
_TEMPLATE: Raw = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {"runtimeClassName": "old", "containers": [{"name": "c", "image": "i"}]},
}


@dataclass
class Recorded:
    """What each user asked for, and what was denied."""

    allowed: dict[str, set[Action]] = field(default_factory=dict)
    denied: list[tuple[str, Action]] = field(default_factory=list)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    seen = Recorded()
    decide = Authorizer.decide

    def recording(self: Authorizer, user: Any, action: Action, *more: Any) -> Any:
        decision = decide(self, user, action, *more)
        if user.name.startswith("system:serviceaccount:"):
            if decision.is_allowed:
                seen.allowed.setdefault(user.name, set()).add(action)
            else:
                seen.denied.append((user.name, action))
        return decision

    monkeypatch.setattr(Authorizer, "decide", recording)
    return seen


def _user(component: str) -> str:
    return f"system:serviceaccount:{NAMESPACE}:moorage-{component}"


def _client(server: Running, name: str, organization: str = "") -> Client:
    pair = server.authority.issue(name.replace(":", "-"), Subject(name, organization))
    config = ClientConfig(
        server=server.url,
        ca=server.authority.pair.certificate.read_bytes(),
        certificate=pair.certificate.read_bytes(),
        key=pair.key.read_bytes(),
    )
    return Client(config, user_agent="test")


def _rules(objects: list[Raw]) -> list[Raw]:
    return [
        rule for obj in objects if obj["kind"] in ("ClusterRole", "Role") for rule in obj["rules"]
    ]


def _unused(objects: list[Raw], used: set[Action]) -> list[str]:
    """The verbs of rules that no request needed, as texts."""
    unused = []
    for rule in _rules(objects):
        for path in rule.get("nonResourceURLs", ()):
            if not any(not one.is_resource and one.path == path for one in used):
                unused.append(path)
        for resource in rule.get("resources", ()):
            group = rule["apiGroups"][0]
            for verb in rule["verbs"]:
                if not any(
                    (one.group, one.full_resource, one.verb) == (group, resource, verb)
                    for one in used
                    if one.is_resource
                ):
                    unused.append(f"{verb} {resource}.{group}")
    return unused


async def _install(server: Running, objects: list[Raw]) -> None:
    for obj in objects:
        path = _PATHS.get(obj["kind"])
        if path is None:
            continue
        path = path.replace("NAMESPACE", obj["metadata"].get("namespace", ""))
        answer = await server.ask("POST", path, obj)
        assert answer.status == 201, answer.text


@asynccontextmanager
async def _background(*loops: Any) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until(read: Callable[[], Any], condition: Callable[[Any], object], what: str) -> Any:
    """Wait until what is read meets a condition."""
    seen = None
    try:
        async with asyncio.timeout(30):
            while True:
                seen = await read()
                if condition(seen):
                    return seen
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"never: {what}; last seen {seen}") from None


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path, runs=True) as running:
        yield running


async def _profile(admin: Client, node: str, handler: str, isolation: str) -> None:
    name = profile_name(node, handler)
    spec = {"nodeName": node, "handler": handler}
    await admin.create(RUNTIME_PROFILES, {"metadata": {"name": name}, "spec": spec})
    await _isolation(admin, name, isolation)


async def _isolation(admin: Client, name: str, isolation: str) -> None:
    working = {
        "type": "Working", "status": "True", "reason": "Tested", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    status = {"isolation": isolation, "conditions": [working]}
    await admin.patch(RUNTIME_PROFILES, name, {"status": status}, subresource="status")


async def test_the_webhook_needs_all_that_it_may_and_no_more(
    server: Running, recorded: Recorded
) -> None:
    granted = webhook.objects(VALUES)
    await _install(server, [obj for obj in granted if "Webhook" not in obj["kind"]])
    async with _client(server, "kubernetes-admin", "system:masters") as admin:
        await install_definitions(admin)
    async with _client(server, _user("webhook")) as client:
        await client.request("GET", "/readyz")
        await wait_installed(client, SystemClock())
        facts = InformedFacts(client, SystemClock())
        async with _background(facts.run()), asyncio.timeout(20):
            await facts.wait_synced()
            used = recorded.allowed[_user("webhook")]
            await _until(_now(lambda: _unused(granted, used)), lambda left: not left, "all used")
    assert recorded.denied == []


def _now(read: Callable[[], Any]) -> Callable[[], Any]:
    async def reading() -> Any:
        return read()

    return reading


async def _do_everything(server: Running, admin: Client) -> None:
    """Have the controllers do all that they can do, and wait for it."""
    # Classes of handlers that work; a second one reads the record of the first.
    await admin.create(NODES, {"metadata": {"name": "n"}})
    handlers = [{"name": "runc"}, {"name": "crun"}]
    await admin.patch(NODES, "n", {"status": {"runtimeHandlers": handlers}}, subresource="status")
    for handler in ("runc", "crun"):
        await _profile(admin, "n", handler, "")
        await _class(admin, handler, bool)
    await _isolation(admin, "n.runc", "shared-kernel")
    await _class(admin, "runc", lambda found: found.metadata.labels.get(
        "runtime.moorage.dev/isolation"))  # fmt: skip
    # A pod that waits, gets its node, and waits once more.
    await admin.create(RUNTIME_CLASSES, {"metadata": {"name": "kata"}, "handler": "kata"})
    spec = {"runtimeClassName": "kata", "containers": [{"name": "c", "image": "i"}]}
    for name, more in (("gated", {"schedulingGates": [{"name": HANDLER_GATE}]}), ("free", {})):
        await admin.create(PODS, {"metadata": {"name": name}, "spec": {**spec, **more}}, "default")
    for value, status in (("true", "True"), (None, "False"), ("true", "True"), (None, "False")):
        await _condition(admin, "free", "False" if status == "True" else "True")
        await admin.patch(NODES, "n", {"metadata": {"labels": {handler_label("kata"): value}}})
        await _condition(admin, "free", status)
    gated = await admin.get(PODS, "gated", "default")
    assert not gated.spec.scheduling_gates
    # The namespace of a floor.
    floor = {"metadata": {"name": "p"}, "spec": {"minimumIsolation": "shared-kernel"}}
    await admin.create(RUNTIME_POLICIES, floor, "default")
    await _until(
        lambda: admin.get(NAMESPACES, "default"),
        lambda one: one.metadata.labels.get(ENFORCE_LABEL) == "true",
        "namespace labelled",
    )
    await admin.delete(RUNTIME_POLICIES, "p", "default")
    # Quotas, installations, rollouts.
    quota = {"metadata": {"name": "q"}, "spec": {"className": "kata",
             "hard": {"pods": 5}}}  # fmt: skip
    await admin.create(RUNTIME_CLASS_QUOTAS, quota, "default")
    await _until(
        lambda: admin.get(RUNTIME_CLASS_QUOTAS, "q", "default"), lambda one: one.status.used, "used"
    )
    source = {"architecture": "amd64", "path": "/x", "sha256": "a" * 64}
    installation = {"metadata": {"name": "i"}, "spec": {"handler": "h", "sources": [source]}}
    await admin.create(RUNTIME_INSTALLATIONS, installation)
    await _until(
        lambda: admin.get(RUNTIME_INSTALLATIONS, "i"),
        lambda one: one.status.conditions and one.metadata.finalizers,
        "installation planned",
    )
    await _roll_out(server, admin)
    # What its pods cost, of a node that has some.
    await admin.create(
        PODS, {"metadata": {"name": "bound"}, "spec": {**spec, "nodeName": "n"}}, "default"
    )
    running = {"phase": "Running"}
    await admin.patch(PODS, "bound", {"status": running}, "default", subresource="status")


async def _class(admin: Client, name: str, condition: Callable[[Any], object]) -> None:
    async def read() -> Any:
        listed = await admin.list(RUNTIME_CLASSES)
        return next((one for one in listed.items if one.metadata.name == name), None)

    await _until(read, lambda one: one is not None and condition(one), f"class {name}")


async def _condition(admin: Client, name: str, status: str) -> None:
    await _until(
        lambda: admin.get(PODS, name, "default"),
        lambda pod: any(
            one.type.endswith("/HandlerAvailable") and one.status == status
            for one in pod.status.conditions
        ),
        f"condition of {name}: {status}",
    )


async def _roll_out(server: Running, admin: Client) -> None:
    for name in ("old", "new"):
        await admin.create(RUNTIME_CLASSES, {"metadata": {"name": name}, "handler": "runc"})
    labels = {"selector": {"matchLabels": {"app": "a"}}, "template": _TEMPLATE}
    job = {"template": {"spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}}}
    workloads = (
        ("apps", "deployments", {**labels, "replicas": 0}),
        ("apps", "statefulsets", {**labels, "replicas": 0, "serviceName": "s"}),
        ("apps", "daemonsets", labels),
        ("batch", "cronjobs", {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job}}),
    )
    for group, plural, spec in workloads:
        path = f"/apis/{group}/v1/namespaces/default/{plural}"
        answer = await server.ask("POST", path, {"metadata": {"name": "w"}, "spec": spec})
        assert answer.status == 201, answer.text
        # No controller of workloads runs here: say what it would.
        kept = {"observedGeneration": 9}
        patch = {"Content_Type": "application/merge-patch+json"}
        await server.ask("PATCH", f"{path}/w/status", {"status": kept}, **patch)
    rollout = {"from": "old", "to": "new"}
    await admin.create(RUNTIME_ROLLOUTS, {"metadata": {"name": "r"}, "spec": rollout})

    async def classes() -> list[str]:
        found = []
        for group, plural, _ in workloads:
            path = f"/apis/{group}/v1/namespaces/default/{plural}/w"
            spec = (await server.ask("GET", path)).json["spec"]
            template = spec["jobTemplate"]["spec"]["template"] if "jobTemplate" in spec else (
                spec["template"])  # fmt: skip
            found.append(template["spec"]["runtimeClassName"])
        return found

    await _until(classes, lambda found: set(found) == {"new"}, "all moved")


async def _damage_secret(admin: Client) -> None:
    """Have the certificate's Secret made, repaired and replaced."""
    name = webhook.SECRET

    async def sound() -> Any:
        listed = await admin.list(SECRETS, NAMESPACE)
        return next((one for one in listed.items if one.metadata.name == name), None)

    def is_sound(secret: Any) -> bool:
        return bool(secret) and secret.type == "kubernetes.io/tls" and len(
            secret.data.get("tls.key", "")) > 100  # fmt: skip

    await _until(sound, is_sound, "certificate")
    damaged = {"data": {"tls.key": base64.b64encode(b"no").decode()}}
    await admin.patch(SECRETS, name, damaged, NAMESPACE, kind=PatchType.MERGE)
    await _until(sound, is_sound, "certificate repaired")
    await admin.delete(SECRETS, name, NAMESPACE)
    opaque = {"metadata": {"name": name}, "type": "Opaque", "data": {}}
    # The controller may be faster, and is asked once more then.
    while True:
        try:
            await admin.create(SECRETS, opaque, NAMESPACE)
            break
        except AlreadyExistsError:
            await admin.delete(SECRETS, name, NAMESPACE)
    await _until(sound, is_sound, "certificate replaced")


async def test_the_controllers_need_all_that_they_may_and_no_more(
    server: Running, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorage.controllers.overhead_drift._INTERVAL_S", 0.5)
    granted = controllers.objects(VALUES)
    async with (
        _client(server, "kubernetes-admin", "system:masters") as admin,
        _client(server, _user("controllers")) as client,
    ):
        await server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for name in (NAMESPACE, "default"):
            account = {"metadata": {"name": "default"}}
            await server.ask("POST", f"/api/v1/namespaces/{name}/serviceaccounts", account)
        # Nothing answers at the webhook's service: what is not to be refused is ignored.
        configurations = [obj for obj in webhook.objects(VALUES) if "Webhook" in obj["kind"]]
        for obj in configurations:
            for hook in obj["webhooks"]:
                hook["failurePolicy"] = "Ignore"
                hook["timeoutSeconds"] = 1
        await _install(server, [*configurations, *granted])
        await install_definitions(admin)
        await client.request("GET", "/readyz")
        clock = SystemClock()
        # Of two candidates, one leads, and the other watches its lease.
        one, other = (
            LeaderElector(client, NAMESPACE, controllers.LEASE, name, clock)
            for name in ("one", "other")
        )
        options = ControllerOptions(
            cluster_ca="", creates_classes=True, removes_gates=True, labels_floors=True
        )
        service = WebhookService(webhook.SERVICE, NAMESPACE)

        async def lead() -> None:
            await run_runtimes(client, options, clock, webhook=service)

        async with _background(one.run(lead)), _background(other.run(lead)):
            await _damage_secret(admin)
            await _do_everything(server, admin)
            used = recorded.allowed[_user("controllers")]
            await _until(_now(lambda: _unused(granted, used)), lambda left: not left, "all used")
    assert recorded.denied == []
