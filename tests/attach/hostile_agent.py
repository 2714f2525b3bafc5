"""A hostile pod with the runtime agent's account: what it may write, and what it may not.

Against any API server that a kubeconfig's administrator reaches: ours, and kube-apiserver.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import pytest

from moorage.api.clock import SystemClock
from moorage.api.errors import (
    AlreadyExistsError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    StatusError,
)
from moorage.api.runtime_group import API_VERSION, ISOLATION_LABEL, PROBE_LABEL, profile_name
from moorage.api.runtime_installations import node_manager
from moorage.attach.manifests import agent_policy, definitions, runtime_agent
from moorage.attach.values import Values
from moorage.runtimes.probing.pod_carrier import NAMESPACE as PROBES
from moorage.runtimes.probing.pod_manifest import probe_class_name, probe_pod_name
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.discovery import read_version
from moorage.wire.client.informer import Informer
from moorage.wire.client.queue import wait_until
from moorage.wire.client.resources import (
    EVENTS,
    NODES,
    PODS,
    RUNTIME_CLASSES,
    RUNTIME_INSTALLATIONS,
    RUNTIME_PROFILES,
    SERVICE_ACCOUNTS,
    Resource,
)
from moorage.wire.client.rest import Client, PatchType
from moorage.wire.client.served import run_when_served

VALUES = Values(namespace="hostile-agent")
ACCOUNT = "moorage-runtime-agent"
_ALLOWED_TRIES = 100
_PAUSE_S = 0.1

Write = Callable[[], Awaitable[Any]]


async def resources_by_kind(client: Client) -> dict[tuple[str, str], Resource[Any]]:
    """Every resource of the groups that the manifests use."""
    versions = (
        "v1", "apps/v1", "rbac.authorization.k8s.io/v1", "admissionregistration.k8s.io/v1",
        "apiextensions.k8s.io/v1",
    )  # fmt: skip
    found = [entry for version in versions for entry in await read_version(client, version)]
    return {(entry.resource.api_version, entry.resource.kind): entry.resource for entry in found}


@asynccontextmanager
async def installed(admin: Client) -> AsyncIterator[None]:
    """The agent's objects but its DaemonSet, on a server; they are gone at the end."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": VALUES.namespace}}
    made = [namespace, *definitions.objects(VALUES), *runtime_agent.objects(VALUES)]
    made = [obj for obj in [*made, *agent_policy.objects(VALUES)] if obj["kind"] != "DaemonSet"]
    kinds = await resources_by_kind(admin)
    created: list[tuple[Resource[Any], str, str | None]] = []
    try:
        for obj in made:
            resource = kinds[obj["apiVersion"], obj["kind"]]
            place = obj["metadata"].get("namespace")
            # The cluster's own definitions may be there already, and stay.
            with contextlib.suppress(AlreadyExistsError):
                await admin.create(resource, obj, place)
                created.append((resource, obj["metadata"]["name"], place))
        await run_when_served(admin, RUNTIME_INSTALLATIONS, SystemClock(), _nothing)
        yield
    finally:
        for resource, name, place in reversed(created):
            if resource.kind != "CustomResourceDefinition":
                with contextlib.suppress(NotFoundError):
                    await admin.delete(resource, name, place)


async def _nothing() -> None:
    return None


async def assert_confined(config: ClientConfig) -> None:
    """Try everything as an agent of node n1, beside node n2."""
    mark = secrets.token_hex(3)
    own, other = f"hostile-{mark}-1", f"hostile-{mark}-2"
    async with Client(config, user_agent="test") as admin, installed(admin):
        for node in (own, other):
            await admin.create(NODES, {"metadata": {"name": node, "labels": {"kept": "yes"}}})
        try:
            token = await _token(admin, own)
            hostile_config = ClientConfig(config.server, ca=config.ca, token=token)
            async with Client(hostile_config, user_agent="hostile") as hostile:
                await _until_confined(hostile, own)
                await _try_nodes(hostile, own, other)
                await _try_profiles(admin, hostile, own, other)
                await _try_installations(admin, hostile, own, other)
                await _try_probes(admin, hostile, own, other)
                await _try_events(admin, hostile, own, other)
                await _try_everything_else(hostile, own)
            unbound = await _token(admin, "")
            async with Client(
                ClientConfig(config.server, ca=config.ca, token=unbound), user_agent="unbound"
            ) as unbound_agent:
                await _refused(lambda: _label(unbound_agent, own, "runtime.moorage.dev/x", "true"))
        finally:
            for node in (own, other):
                await admin.delete(NODES, node)


async def _token(admin: Client, node: str) -> str:
    """A token of the account, bound to a pod on a node, or to none."""
    accounts = Informer(admin, SERVICE_ACCOUNTS, namespace=VALUES.namespace)
    await wait_until(accounts, lambda found: any(one.metadata.name == ACCOUNT for one in found))
    spec: dict[str, Any] = {"audiences": []}
    if node:
        name = f"hostile-{node}"
        body = {
            "metadata": {"name": name},
            "spec": {
                "nodeName": node,
                "serviceAccountName": ACCOUNT,
                "containers": [{"name": "c", "image": "example.com/none"}],
            },
        }
        await admin.create(PODS, body, VALUES.namespace)
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": name}
    answer = await admin.request(
        "POST",
        SERVICE_ACCOUNTS.path(VALUES.namespace, ACCOUNT, "token"),
        body=msgspec.json.encode(
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        ),
    )
    token: str = msgspec.json.decode(answer)["status"]["token"]
    return token


async def _until_confined(hostile: Client, own: str) -> None:
    """Wait until the rights and the policies are in force, which caches hold up for a moment."""
    refused = False
    for _ in range(_ALLOWED_TRIES):
        try:
            await _label(hostile, own, "runtime.moorage.dev/first", "true")
        except ForbiddenError:
            await asyncio.sleep(_PAUSE_S)
            continue
        try:
            await _label(hostile, own, "first", "x")
        except ForbiddenError:
            refused = True
            break
        await _label(hostile, own, "first", None)
        await asyncio.sleep(_PAUSE_S)
    assert refused, "the policy is not in force"


async def _refused(write: Write) -> str:
    with pytest.raises((ForbiddenError, InvalidError, NotFoundError)) as caught:
        await write()
    assert isinstance(caught.value, StatusError)
    return str(caught.value)


async def _label(client: Client, node: str, key: str, value: str | None) -> None:
    await client.patch(NODES, node, {"metadata": {"labels": {key: value}}})


async def _try_nodes(hostile: Client, own: str, other: str) -> None:
    await _label(hostile, own, "runtime.moorage.dev/runc", "true")
    await _label(hostile, own, "runc.runtime.moorage.dev/exec", "true")
    await _label(hostile, own, "runtime.moorage.dev/runc", None)
    said = await _refused(lambda: _label(hostile, other, "runtime.moorage.dev/runc", "true"))
    assert "changes its own node only" in said
    foreign = (
        "kept", "node-role.kubernetes.io/control-plane", "runtime.moorage.dev.evil/x",
        "evilruntime.moorage.dev/x",
    )  # fmt: skip
    for key in foreign:
        for value in ("evil", None) if key == "kept" else ("evil",):
            said = await _refused(partial(_label, hostile, own, key, value))
            assert "labels under runtime.moorage.dev only" in said
    for change in (
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"metadata": {"finalizers": ["example.com/stay"]}},
    ):
        said = await _refused(partial(hostile.patch, NODES, own, change))
        assert "nothing of a node but labels" in said
    for node in (own, other):
        await _refused(
            partial(
                hostile.patch,
                NODES,
                node,
                {"status": {"capacity": {"cpu": "999"}}},
                subresource="status",
            )
        )
        await _refused(partial(hostile.delete, NODES, node))
    await _refused(lambda: hostile.create(NODES, {"metadata": {"name": "new"}}))


def _profile(node: str, handler: str = "runc", name: str = "") -> dict[str, Any]:
    return {
        "metadata": {"name": name or profile_name(node, handler)},
        "spec": {"nodeName": node, "handler": handler},
    }


async def _try_profiles(admin: Client, hostile: Client, own: str, other: str) -> None:
    made = await hostile.create(RUNTIME_PROFILES, _profile(own))
    theirs = await admin.create(RUNTIME_PROFILES, _profile(other))

    def status(profile: Any) -> dict[str, Any]:
        return {
            "apiVersion": API_VERSION,
            "kind": "RuntimeProfile",
            "metadata": {
                "name": profile.metadata.name,
                "resourceVersion": profile.metadata.resource_version,
            },
            "spec": {"nodeName": profile.spec.node_name, "handler": profile.spec.handler},
            "status": {"isolation": "virtual-machine"},
        }

    await hostile.update(RUNTIME_PROFILES, status(made), made.metadata.name, subresource="status")
    await _refused(
        lambda: hostile.update(
            RUNTIME_PROFILES, status(theirs), theirs.metadata.name, subresource="status"
        )
    )
    for body in (
        _profile(other, "crun"),
        _profile(own, "crun", name=f"{other}.crun"),
        _profile(other, "crun", name=f"{own}.crun"),
    ):
        said = await _refused(partial(hostile.create, RUNTIME_PROFILES, body))
        assert "RuntimeProfiles NODE.HANDLER of its own node only" in said
    owned = _profile(own, "crun")
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Node", "name": other, "uid": "u"}
    ]
    await _refused(lambda: hostile.create(RUNTIME_PROFILES, owned))
    await _refused(lambda: hostile.delete(RUNTIME_PROFILES, theirs.metadata.name))
    await hostile.delete(RUNTIME_PROFILES, made.metadata.name)
    await admin.delete(RUNTIME_PROFILES, theirs.metadata.name)


async def _try_installations(admin: Client, hostile: Client, own: str, other: str) -> None:
    name = f"hostile-{own}"
    # No node is selected, so no controller changes it meanwhile.
    spec = {
        "handler": "hostile",
        "nodeSelector": {"no": "node"},
        "sources": [{"architecture": "amd64", "path": "/none", "sha256": "0" * 64}],
    }
    await admin.create(RUNTIME_INSTALLATIONS, {"metadata": {"name": name}, "spec": spec})

    async def apply(client: Client, node: str, manager: str, **status: Any) -> Any:
        body = {
            "apiVersion": API_VERSION,
            "kind": "RuntimeInstallation",
            "metadata": {"name": name},
            "status": {"nodes": [{"name": node, "phase": "Installing"}], **status},
        }
        return await client.patch(
            RUNTIME_INSTALLATIONS, name, body, kind=PatchType.APPLY, subresource="status",
            field_manager=manager, force=True,
        )  # fmt: skip

    try:
        await apply(admin, other, node_manager(other))
        after = await apply(hostile, own, node_manager(own))
        assert {entry.name for entry in after.status.nodes} == {own, other}
        said = await _refused(lambda: apply(hostile, "third", node_manager(own)))
        assert "its own entry in status.nodes only" in said
        said = await _refused(lambda: apply(hostile, own, "x", allowed=[own]))
        assert "nothing of a status but its own entry" in said
        said = await _refused(
            lambda: hostile.patch(
                RUNTIME_INSTALLATIONS, name, {"status": {"nodes": []}}, subresource="status"
            )
        )
        assert "its own entry" in said
        await _refused(
            lambda: hostile.patch(RUNTIME_INSTALLATIONS, name, {"spec": {"nodeSelector": {}}})
        )
        await _refused(lambda: hostile.delete(RUNTIME_INSTALLATIONS, name))
    finally:
        await admin.delete(RUNTIME_INSTALLATIONS, name)


def _pod(name: str, node: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "example.com/none"}],
        },
    }


async def _try_probes(admin: Client, hostile: Client, own: str, other: str) -> None:
    accounts = Informer(admin, SERVICE_ACCOUNTS, namespace=PROBES)
    await wait_until(accounts, lambda found: any(one.metadata.name == "default" for one in found))
    mine, theirs = (probe_pod_name(node, "00000000") for node in (own, other))
    await hostile.create(PODS, _pod(mine, own), PROBES)
    await admin.create(PODS, _pod(theirs, other), PROBES)
    for name, node in ((theirs + "x", other), (probe_pod_name(own, "1" * 8), other), ("p", own)):
        said = await _refused(partial(hostile.create, PODS, _pod(name, node), PROBES))
        assert "probe pods of its own node only" in said
    await _refused(lambda: hostile.create(PODS, _pod(mine, own), VALUES.namespace))
    await _refused(lambda: hostile.create(PODS, _pod(mine, own), "kube-system"))
    await _refused(lambda: hostile.delete(PODS, theirs, PROBES, grace_period_seconds=0))
    path = PODS.path(PROBES, theirs, "exec")
    said = await _refused(
        lambda: hostile.request("POST", path, query={"command": "id", "stdout": "true"})
    )
    assert "connects to probe pods of its own node only" in said
    await hostile.delete(PODS, mine, PROBES, grace_period_seconds=0)
    await admin.delete(PODS, theirs, PROBES, grace_period_seconds=0)

    def class_(name: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "labels": {PROBE_LABEL: name}}, "handler": "runc"}

    probe_class = probe_class_name(own, "runc")
    hides = {"metadata": {"name": probe_class}, "handler": "runc"}
    claims = class_(probe_class)
    claims["metadata"]["labels"][ISOLATION_LABEL] = "virtual-machine"
    pulls = class_(probe_class) | {"scheduling": {"nodeSelector": {"a": "b"}}}
    costs = class_(probe_class) | {"overhead": {"podFixed": {"cpu": "1m"}}}
    for body in (hides, claims, pulls, costs):
        said = await _refused(partial(hostile.create, RUNTIME_CLASSES, body))
        assert "and nothing else" in said
    await hostile.create(RUNTIME_CLASSES, class_(probe_class))
    await admin.create(RUNTIME_CLASSES, class_(probe_class_name(other, "runc")))
    for name in ("runc", probe_class_name(own, "crun"), probe_class_name("third", "runc")):
        said = await _refused(partial(hostile.create, RUNTIME_CLASSES, class_(name)))
        assert "classes of its own node's probes only" in said
    await _refused(lambda: hostile.delete(RUNTIME_CLASSES, probe_class_name(other, "runc")))
    await hostile.delete(RUNTIME_CLASSES, probe_class)
    await admin.delete(RUNTIME_CLASSES, probe_class_name(other, "runc"))


async def _try_events(admin: Client, hostile: Client, own: str, other: str) -> None:
    def event(kind: str, name: str) -> dict[str, Any]:
        return {
            "metadata": {"generateName": "hostile-", "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": kind, "name": name},
            "reason": "Test",
            "message": "test",
            "type": "Normal",
        }

    await hostile.create(EVENTS, event("Node", own), "default")
    for kind, name in (("Node", other), ("ServiceAccount", "x")):
        said = await _refused(partial(hostile.create, EVENTS, event(kind, name), "default"))
        assert "events about its own node" in said
    theirs = await admin.create(EVENTS, event("Node", other), "default")
    name = theirs.metadata.name
    for patch in (
        {"message": "changed"},
        {"message": "changed", "involvedObject": {"name": own}},
        {"involvedObject": {"kind": "RuntimeInstallation"}},
    ):
        for patch_type in (PatchType.MERGE, PatchType.STRATEGIC):
            await _refused(partial(hostile.patch, EVENTS, name, patch, "default", kind=patch_type))
    await admin.delete(EVENTS, name, "default")


async def _try_everything_else(hostile: Client, own: str) -> None:
    for path in (
        "/api/v1/secrets", "/api/v1/namespaces/kube-system/configmaps", "/api/v1/pods",
        f"/api/v1/nodes/{own}/proxy/pods", "/apis/apps/v1/daemonsets",
    ):  # fmt: skip
        await _refused(partial(hostile.request, "GET", path))
