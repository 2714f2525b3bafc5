"""Attaching and detaching on a control plane whose pods a fake node agent runs."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moorage.api.clock import SystemClock
from moorage.attach.attachment import Plan, attach, plan_attachment
from moorage.attach.changes import Verb
from moorage.attach.class_uses import ClassUses
from moorage.attach.detach_options import DetachOptions, Leftover
from moorage.attach.detachment import detach, plan_detachment
from moorage.attach.errors import AttachError
from moorage.attach.installation import InstallationOptions
from moorage.attach.manifests import objects
from moorage.attach.manifests.identity import labels
from moorage.attach.outcome import Outcome
from moorage.attach.served_objects import ServedObjects, key_of
from moorage.attach.values import Values
from moorage.wire.client.resources import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CRON_JOBS,
    DAEMON_SETS,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    REPLICA_SETS,
    RUNTIME_CLASSES,
    RUNTIME_INSTALLATIONS,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from moorage.wire.client.rest import Client
from tests.attach.cluster_dump import Dump, dump
from tests.controllers.cluster import Cluster, FakeNodeAgent, running_cluster

_AUTHORITY = base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode()
_CHANGING = frozenset(("Event", "Lease", "EndpointSlice", "Endpoints", "APIService", "Namespace"))
_FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_GATE = "runtime.moorage.dev/handler"


class Attachments:
    """A cluster with a node, and what a user does with it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.said: list[str] = []

    async def plan(self, values: Values | None = None) -> Plan:
        return await plan_attachment(self.client, values or Values())

    async def attach(self, values: Values | None = None, *, timeout_s: float = 30) -> Outcome:
        plan = await self.plan(values)
        assert plan.is_possible, plan.findings
        options = InstallationOptions(self.said.append, lambda _: None, timeout_s, 0.1)
        certificate = asyncio.create_task(self._certificate(plan.values.namespace))
        try:
            return await attach(self.client, plan, SystemClock(), options)
        finally:
            certificate.cancel()

    async def detach(self, **options: Any) -> list[Leftover]:
        chosen = DetachOptions(said=self.said.append, **{"timeout_s": 30, **options})
        return await detach(self.client, SystemClock(), chosen)

    async def _certificate(self, namespace: str) -> None:
        """Issue the webhook's certificate, as the controllers do once they run."""
        await self.cluster.until(
            NAMESPACES, lambda found: any(one.metadata.name == namespace for one in found)
        )
        secret = {
            "metadata": {"name": "moorage-webhook-tls"},
            "data": {"ca.crt": _AUTHORITY, "tls.crt": _AUTHORITY, "tls.key": _AUTHORITY},
        }
        await self.cluster.client.create(SECRETS, secret, namespace)

    async def dump(self) -> Dump:
        return await dump(self.client, _CHANGING)


@asynccontextmanager
async def attachments(directory: Path) -> AsyncIterator[Attachments]:
    async with running_cluster(directory, runs_runtimes=False) as cluster:
        labels = {"kubernetes.io/os": "linux"}
        await cluster.client.create(NODES, {"metadata": {"name": "n1", "labels": labels}})
        await cluster.heartbeat("n1")
        agent = asyncio.create_task(FakeNodeAgent(cluster, "n1").run())
        try:
            await cluster.until(NODES, lambda nodes: not nodes[0].spec.taints)
            await cluster.until(CONFIG_MAPS, _are_published)
            yield Attachments(cluster)
        finally:
            agent.cancel()
            await asyncio.gather(agent, return_exceptions=True)


def _are_published(found: Sequence[Any]) -> bool:
    """Whether each of the first namespaces has the authority that pods trust."""
    count = sum(1 for one in found if one.metadata.name == "kube-root-ca.crt")
    return count == len(_FIRST_NAMESPACES)


def pod(name: str, runtime_class: str = "", **spec: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}], **spec}
    if runtime_class:
        fields["runtimeClassName"] = runtime_class
    return {"metadata": {"name": name}, "spec": fields}


def installation(name: str, policy: str = "Remove") -> dict[str, Any]:
    source = {"architecture": "amd64", "path": "/x", "sha256": "0" * 64}
    spec = {"handler": name, "sources": [source], "removalPolicy": policy}
    finalizers = ["runtime.moorage.dev/installation"]
    return {"metadata": {"name": name, "finalizers": finalizers}, "spec": spec}


async def test_what_is_attached_is_detached_without_a_trace(tmp_path: Path) -> None:
    async with attachments(tmp_path) as user:
        before = await user.dump()
        outcome = await user.attach(timeout_s=30)
        assert [node.node for node in outcome.nodes] == ["n1"]
        present = await user.dump()
        assert {key_of(obj) for obj in objects(Values()) if obj["kind"] not in _CHANGING} <= set(
            present
        )
        configuration = present["MutatingWebhookConfiguration", "", "moorage"]
        bundles = {webhook["clientConfig"]["caBundle"] for webhook in configuration["webhooks"]}
        assert bundles == {_AUTHORITY}
        # The second time there is nothing to do.
        assert (await user.plan()).changing == []
        await _leave_traces(user)
        left = await user.detach()
        assert left == []
        after = await user.dump()
        assert after.keys() == before.keys()
        assert after == before
        assert (await plan_detachment(user.client)).is_empty


async def _leave_traces(user: Attachments) -> None:
    """Write what the parts write on objects of others."""
    labels = {"runtime.moorage.dev/runc": "true", "runc.runtime.moorage.dev/devices": "true"}
    await user.client.patch(NODES, "n1", {"metadata": {"labels": labels}})
    broken = {"type": "kata.runtime.moorage.dev/Working", "status": "False"}
    await user.cluster.status(NODES, "n1", {"conditions": [broken]})
    managed = {"name": "runc", "labels": {"runtime.moorage.dev/managed": "true"}}
    await user.client.create(RUNTIME_CLASSES, {"metadata": managed, "handler": "runc"})
    record = {"metadata": {"name": "moorage-runtime-classes"}, "data": {"runc": ""}}
    await user.client.create(CONFIG_MAPS, record, "kube-system")


async def test_values_that_change_are_applied_and_what_they_drop_is_removed(
    tmp_path: Path,
) -> None:
    async with attachments(tmp_path) as user:
        await user.attach()
        changed = Values(create_namespace=True, log_level="debug")
        plan = await user.plan(changed)
        assert {change.verb for change in plan.changing} == {Verb.CHANGE}
        assert {change.obj["kind"] for change in plan.changing} == {"Deployment", "DaemonSet"}
        assert any("+" in change.diff and "debug" in change.diff for change in plan.changing)
        without = await user.plan(_without_classes())
        removed = [change for change in without.changing if change.verb is Verb.REMOVE]
        assert [change.obj["metadata"]["name"] for change in removed] == [
            "moorage-controllers-classes",
            "moorage-controllers-classes",
        ]


def _without_classes() -> Values:
    values = Values()
    return Values(controllers=type(values.controllers)(create_classes=False))


async def test_an_attachment_that_was_stopped_goes_on(tmp_path: Path) -> None:
    async with attachments(tmp_path) as user:
        # No pod becomes ready in no time at all, so the webhook configurations are not there yet.
        with pytest.raises(AttachError, match="run it again to go on"):
            await user.attach(timeout_s=0.01)
        kinds = {key[0] for key in await user.dump()}
        assert "Deployment" in kinds
        assert "MutatingWebhookConfiguration" not in kinds
        await user.attach()
        assert (await user.plan()).changing == []


async def test_pods_keep_running_and_classes_in_use_become_the_users(tmp_path: Path) -> None:
    async with attachments(tmp_path) as user:
        managed = {
            "name": "kata",
            "labels": {
                "app.kubernetes.io/managed-by": "moorage",
                "runtime.moorage.dev/managed": "true",
                "team": "a",
            },
        }
        await user.client.create(RUNTIME_CLASSES, {"metadata": managed, "handler": "kata"})
        await user.client.create(PODS, pod("running", "kata"), "default")
        gated = pod("gated", "kata", schedulingGates=[{"name": _GATE}, {"name": "own/gate"}])
        await user.client.create(PODS, gated, "default")
        await user.attach()
        assert (await plan_detachment(user.client)).classes["kata"] == ClassUses(2)
        left = await user.detach()
        assert left[0].what == "RuntimeClass kata"
        kept = await user.client.get(RUNTIME_CLASSES, "kata")
        assert kept.metadata.labels == {"team": "a"}
        assert (await user.client.get(PODS, "running", "default")).status.phase == "Running"
        lifted = await user.client.get(PODS, "gated", "default")
        assert [gate.name for gate in lifted.spec.scheduling_gates] == ["own/gate"]
        await user.attach()
        left = await user.detach(removes_classes=True)
        assert "RuntimeClass kata" not in [leftover.what for leftover in left]


async def test_a_class_that_only_templates_at_rest_name_becomes_the_users(tmp_path: Path) -> None:
    async with attachments(tmp_path) as user:
        labels = {
            "app.kubernetes.io/managed-by": "moorage",
            "runtime.moorage.dev/managed": "true",
        }
        for name in ("nightly", "asleep", "unused"):
            managed = {"metadata": {"name": name, "labels": labels}, "handler": "kata"}
            await user.client.create(RUNTIME_CLASSES, managed)
        template = {"spec": pod("x", "nightly")["spec"] | {"restartPolicy": "Never"}}
        cron_job = {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": template}}}
        await user.client.create(
            CRON_JOBS, {"metadata": {"name": "report"}, "spec": cron_job}, "default"
        )
        replica_set = {
            "replicas": 0,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod("x", "asleep")["spec"]},
        }
        annotations = {"runtime.moorage.dev/previous-class": "runc", "own": "kept"}
        metadata = {"name": "web-1", "annotations": annotations}
        await user.client.create(
            REPLICA_SETS, {"metadata": metadata, "spec": replica_set}, "default"
        )
        await user.attach()
        assert (await plan_detachment(user.client)).classes == {
            "nightly": ClassUses(0, ("CronJob default/report",)),
            "asleep": ClassUses(0, ("ReplicaSet default/web-1",)),
            "unused": ClassUses(),
        }
        left = {leftover.what: leftover.why for leftover in await user.detach()}
        assert left["RuntimeClass nightly"].startswith(
            "the template of CronJob default/report uses it; it is yours now"
        )
        classes = {one.metadata.name for one in (await user.client.list(RUNTIME_CLASSES)).items}
        assert {"nightly", "asleep"} <= classes
        assert "unused" not in classes
        kept = await user.client.get(REPLICA_SETS, "web-1", "default")
        assert kept.metadata.annotations == {"own": "kept"}


async def test_a_namespace_of_others_is_used_and_left(tmp_path: Path) -> None:
    async with attachments(tmp_path) as user:
        await user.client.create(NAMESPACES, {"metadata": {"name": "moorage-system"}})
        plan = await user.plan()
        assert not plan.values.create_namespace
        await user.attach()
        await user.detach()
        names = {one.metadata.name for one in (await user.client.list(NAMESPACES)).items}
        assert "moorage-system" in names
        assert "moorage-probes" not in names


class _StoppedError(Exception):
    """Stands in for a SIGKILL."""


class _StoppedClient(Client):
    """A client that is stopped before a write to a path with `stops_at` in it, if it has one."""

    stops_at = ""

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        if method != "GET" and self.stops_at and self.stops_at in path:
            raise _StoppedError
        return await super().request(method, path, **options)


async def test_a_detachment_that_was_stopped_goes_on(tmp_path: Path) -> None:
    options = DetachOptions(said=lambda _: None, timeout_s=30)
    async with attachments(tmp_path) as user:
        before = await user.dump()
        await user.attach()
        await _leave_traces(user)
        config = user.client._config
        async with _StoppedClient(config, user_agent="test") as client:
            for stops_at in ("/deployments/", "/leases/", "/namespaces/moorage-system"):
                client.stops_at = stops_at
                with pytest.raises(_StoppedError):
                    await detach(client, SystemClock(), options)
            client.stops_at = ""
            await detach(client, SystemClock(), options)
        assert await user.dump() == before


async def test_definitions_are_kept_if_asked_for(tmp_path: Path) -> None:
    async with attachments(tmp_path) as user:
        await user.attach()
        await user.client.create(RUNTIME_INSTALLATIONS, installation("i"))
        left = await user.detach(keeps_definitions=True, leaves_runtimes=True)
        whats = [leftover.what for leftover in left]
        assert "the kinds of runtime.moorage.dev" in whats
        assert "what RuntimeInstallation i installed on nodes" in whats
        # Agents that see an installation gone undo it, so they go first.
        said = user.said.index
        assert said("DaemonSet moorage-system/moorage-runtime-agent removed") < said(
            "RuntimeInstallation i removed"
        )
        served = ServedObjects(user.client)
        await served.resource("runtime.moorage.dev/v1alpha1", "RuntimePolicy")


async def test_a_namespace_with_objects_of_others_stays_and_they_are_named(tmp_path: Path) -> None:
    async with attachments(tmp_path) as user:
        await user.attach()
        assert (await plan_detachment(user.client)).foreign == {}
        await user.client.create(SECRETS, {"metadata": {"name": "mine"}}, "moorage-system")
        other = {"metadata": {"name": "moorage-webhook-tls"}}
        await user.client.create(SECRETS, other, "default")
        claim = {
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        await user.client.create(PERSISTENT_VOLUME_CLAIMS, claim, "moorage-system")
        expected = {"moorage-system": ["PersistentVolumeClaim data", "Secret mine"]}
        assert (await plan_detachment(user.client)).foreign == expected
        left = {one.what: one.why for one in await user.detach()}
        assert "PersistentVolumeClaim data, Secret mine" in left["Namespace moorage-system"]
        assert (await user.client.get(SECRETS, "mine", "moorage-system")).metadata.uid
        # One of the same name elsewhere is not ours.
        assert (await user.client.get(SECRETS, "moorage-webhook-tls", "default")).metadata.uid
        # What was ours there is gone.
        secrets = (await user.client.list(SECRETS, "moorage-system")).items
        assert [one.metadata.name for one in secrets] == ["mine"]
        assert await user.detach(removes_namespaces=True) == []
        names = {one.metadata.name for one in (await user.client.list(NAMESPACES)).items}
        assert "moorage-system" not in names


async def test_the_record_of_a_helm_release_is_named(tmp_path: Path) -> None:
    async with attachments(tmp_path) as user:
        await user.attach()
        patch = {"metadata": {"annotations": helm_notes("runtimes", "moorage-system")}}
        await user.client.patch(CLUSTER_ROLES, "moorage-webhook", patch)
        await _pretend_parts(user, "team")
        release = "runtimes -n moorage-system"
        attachment = await user.plan()
        assert not attachment.is_possible
        assert [one.text for one in attachment.findings if "Helm" in one.text] == [
            "Helm installed Moorage here, as release runtimes"
        ]
        plan = await plan_detachment(user.client)
        assert [one.removal for one in plan.releases] == [f"helm uninstall {release}"]
        left = {one.what: one.why for one in await user.detach()}
        pretended = "it has Moorage's label, but no attachment made it"
        assert left == {
            "Helm's record of the release runtimes": f"this removes it: helm uninstall {release}",
            "DaemonSet team/moorage-runtime-agent": pretended,
        }


async def test_what_helm_uninstall_left_is_removed(tmp_path: Path) -> None:
    async with attachments(tmp_path) as user:
        before = await user.dump()
        await user.client.create(NAMESPACES, {"metadata": {"name": "moorage-system"}})
        labels = {"app.kubernetes.io/part-of": "moorage", "app.kubernetes.io/name": "moorage"}
        secret = {"metadata": {"name": "moorage-webhook-tls", "labels": labels}}
        await user.client.create(SECRETS, secret, "moorage-system")
        lease = {"metadata": {"name": "moorage-controllers"}}
        await user.client.create(LEASES, lease, "moorage-system")
        ended = pod("moorage-test-answers", restartPolicy="Never")
        ended["metadata"]["labels"] = labels
        await user.cluster.until(
            SERVICE_ACCOUNTS,
            lambda found: any(one.metadata.namespace == "moorage-system" for one in found),
        )
        await user.client.create(PODS, ended, "moorage-system")
        await user.detach()
        assert not (await user.client.list(LEASES, "moorage-system")).items
        await user.client.delete(NAMESPACES, "moorage-system")
        await user.cluster.until(NAMESPACES, lambda found: len(found) == len(_FIRST_NAMESPACES))
        assert await user.dump() == before


async def _pretend_parts(user: Attachments, namespace: str) -> None:
    """Have users of a namespace make what would hold a detachment, or lead it to others' things."""
    await user.client.create(NAMESPACES, {"metadata": {"name": namespace}})
    notes = helm_notes("database", "production")
    ours = {"labels": labels(), "annotations": notes}
    template = {"metadata": {"labels": labels()}, "spec": pod("a")["spec"]}
    agent = {
        "metadata": {"name": "moorage-runtime-agent", **ours},
        "spec": {"selector": {"matchLabels": labels()}, "template": template},
    }
    await user.client.create(DAEMON_SETS, agent, namespace)
    account = {"metadata": {"name": "moorage-webhook", **ours}}
    await user.client.create(SERVICE_ACCOUNTS, account, namespace)
    stays = {"name": "stays", "labels": labels(), "finalizers": ["team.example/stays"]}
    await user.client.create(PODS, {**pod("stays"), "metadata": stays}, namespace)


def helm_notes(name: str, namespace: str) -> dict[str, str]:
    return {"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": namespace}


def test_every_kind_has_its_place_in_the_order() -> None:
    sequence: Sequence[str] = [obj["kind"] for obj in objects(Values(certificates="cert-manager"))]
    assert sequence[0] == "Namespace"
    assert sequence[-2:] == ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
    assert sequence.index("CustomResourceDefinition") < sequence.index("Deployment")
