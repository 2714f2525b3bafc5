"""Installation: its order, what it says, and the authority in the webhook configurations."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from moorage.api.clock import SystemClock
from moorage.attach.attachment import Plan, attach, plan_attachment
from moorage.attach.changes import Verb
from moorage.attach.errors import AttachError
from moorage.attach.installation import InstallationOptions, is_base64, with_authority
from moorage.attach.manifests import objects
from moorage.attach.needed_rights import Right
from moorage.attach.outcome import NodeOutcome, Outcome
from moorage.attach.progress import PartProgress
from moorage.attach.served_objects import FIELD_MANAGER, ServedObjects, key_of
from moorage.attach.survey import Level
from moorage.attach.values import CERT_MANAGER, ControllersValues, Values
from moorage.wire.client.rest import Client
from tests.attach.object_server import Obj, ObjectServer, running

_BUNDLE = base64.b64encode(b"authority").decode()
_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def _certificate(namespace: str = "moorage-system", bundle: str = _BUNDLE) -> Obj:
    metadata = {"name": "moorage-webhook-tls", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"ca.crt": bundle}}


def _starts(server: ObjectServer, *, are_ready: bool = True) -> None:
    """Have the controllers of a cluster establish definitions and start workloads."""

    def after_write(method: str, obj: Obj) -> None:
        if method != "PATCH" or obj.get("status"):
            return
        status: dict[str, Any] = {}
        if obj["kind"] == "CustomResourceDefinition":
            status = {"conditions": [{"type": "Established", "status": "True"}]}
        elif obj["kind"] == "Deployment" and are_ready:
            status = {"availableReplicas": 2, "updatedReplicas": 2}
        if obj["kind"] == "Deployment" and obj["metadata"]["name"] == "moorage-controllers":
            server.put(_certificate(obj["metadata"]["namespace"]))
        if status:
            server.put(obj | {"status": status})

    server.after_write = after_write


class _Attaching:
    """What a user sees of an attachment."""

    def __init__(self, server: ObjectServer, client: Client) -> None:
        self.client = client
        for name in ("default", "kube-system"):
            server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.said: list[str] = []
        self.parts: list[list[PartProgress]] = []

    async def plan(self, **values: Any) -> Plan:
        return await plan_attachment(self.client, Values(**values))

    async def attach(self, plan: Plan, *, timeout_s: float = 5) -> Outcome:
        options = InstallationOptions(
            self.said.append, lambda parts: self.parts.append(list(parts)), timeout_s, 0.01
        )
        return await attach(self.client, plan, SystemClock(), options)


async def test_everything_is_installed_webhook_configurations_last() -> None:
    async with running() as (server, client):
        _starts(server)
        server.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        user = _Attaching(server, client)
        plan = await user.plan()
        assert plan.is_possible
        assert server.writes == []
        assert {change.verb for change in plan.changes} == {Verb.CREATE}
        outcome = await user.attach(plan)
        wanted = objects(Values())
        found = {key_of(obj) for obj in server.objects.values()}
        assert {key_of(obj) for obj in wanted} <= found
        for kind in _WEBHOOKS:
            for webhook in server.of(kind)["moorage"]["webhooks"]:
                assert webhook["clientConfig"]["caBundle"] == _BUNDLE
        said, user.said = user.said, []
        # The second time there is nothing to do.
        again = await user.plan()
        assert again.changing == []
        assert {change.verb for change in again.changes} == {Verb.KEEP}
        await user.attach(again)
        assert user.said == []
    assert all(line.endswith(" created") for line in said)
    assert len(said) == len(wanted)
    kinds = [line.split()[0] for line in said]
    assert kinds[0] == "Namespace"
    assert kinds[-2:] == list(_WEBHOOKS)
    rest = len(kinds) - 2
    workloads = [at for at, kind in enumerate(kinds) if kind in ("Deployment", "DaemonSet")]
    assert workloads == list(range(rest - len(workloads), rest))
    assert [part.is_done for part in user.parts[-1]] == [True] * len(workloads)
    assert [node.node for node in outcome.nodes] == ["n1"]
    assert isinstance(outcome.nodes[0], NodeOutcome)


async def test_values_that_change_are_applied_and_what_they_drop_is_removed() -> None:
    async with running() as (server, client):
        _starts(server)
        user = _Attaching(server, client)
        await user.attach(await user.plan())
        values: dict[str, Any] = {
            "log_level": "debug", "controllers": ControllersValues(create_classes=False),
        }  # fmt: skip
        plan = await user.plan(**values)
        verbs = {(change.verb, change.obj["kind"]) for change in plan.changing}
        assert verbs == {
            (Verb.CHANGE, "Deployment"), (Verb.CHANGE, "DaemonSet"),
            (Verb.CHANGE, "ClusterRole"), (Verb.REMOVE, "Role"), (Verb.REMOVE, "RoleBinding"),
        }  # fmt: skip
        removed = [change.obj for change in plan.changes if change.verb is Verb.REMOVE]
        assert {obj["metadata"]["name"] for obj in removed} == {"moorage-controllers-classes"}
        assert plan.changes[-len(removed) :] == tuple(plan.changing[-len(removed) :])
        user.said.clear()
        await user.attach(plan)
        present = {key_of(obj) for obj in server.objects.values()}
        assert not present & {key_of(obj) for obj in removed}
        ended = [line.rpartition(" ")[2] for line in user.said]
        changed = [change for change in plan.changing if change.verb is Verb.CHANGE]
        assert ended == ["changed"] * len(changed) + ["removed"] * len(removed)
        assert (await user.plan(**values)).changing == []
        # What is removed by others meanwhile is not said.
        user.said.clear()
        await user.attach(plan)
        assert user.said == []


async def test_objects_of_others_are_not_removed() -> None:
    async with running() as (server, client):
        _starts(server)
        user = _Attaching(server, client)
        await user.attach(await user.plan())
        labelled = {"app.kubernetes.io/part-of": "moorage", "app.kubernetes.io/name": "moorage"}
        fields = [{"manager": FIELD_MANAGER, "operation": "Update"}]
        metadata = {
            "name": "x", "namespace": "shop", "labels": labelled, "managedFields": fields,
        }  # fmt: skip
        server.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        assert (await user.plan()).changing == []


async def test_parts_that_do_not_start_stop_an_attachment_before_its_webhooks() -> None:
    async with running() as (server, client):
        _starts(server, are_ready=False)
        user = _Attaching(server, client)
        with pytest.raises(AttachError) as failure:
            await user.attach(await user.plan(), timeout_s=0.8)
        assert not any(server.of(kind) for kind in _WEBHOOKS)
        for obj in server.of("Deployment").values():
            server.put(obj | {"status": {"availableReplicas": 2, "updatedReplicas": 2}})
        await user.attach(await user.plan())
        assert all(server.of(kind) for kind in _WEBHOOKS)
    assert str(failure.value).splitlines()[:2] == [
        "the parts are not ready after 0.8 s; run it again to go on",
        "  moorage-controllers: 0 of 2 pods are ready",
    ]
    assert "runtime-agent" not in str(failure.value)


async def test_a_namespace_of_others_is_used_as_it_is() -> None:
    async with running() as (server, client):
        server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mine"}})
        engine = {"operatingSystem": "linux", "containerRuntimeVersion": "containerd://2.0.1"}
        node = {"metadata": {"name": "n"}, "status": {"nodeInfo": engine}}
        server.put({"apiVersion": "v1", "kind": "Node", **node})
        plan = await _Attaching(server, client).plan(namespace="mine")
    assert plan.is_possible
    assert not plan.values.create_namespace
    assert ("Namespace", "", "mine") not in {key_of(change.obj) for change in plan.changes}
    assert [finding.level for finding in plan.findings] == [Level.WARNING]


@pytest.mark.parametrize(
    ("denied", "missing", "ungranted"),
    [
        (("create", "daemonsets"),
         (Right("create", "apps", "daemonsets", "moorage-system"),), ()),
        (("list", "runtimeclasses"), (Right("list", "node.k8s.io", "runtimeclasses"),), ()),
        (("watch", "customresourcedefinitions"),
         (Right("watch", "apiextensions.k8s.io", "customresourcedefinitions"),), ()),
    ],
)  # fmt: skip
async def test_what_the_user_may_not_forbids_an_attachment(
    denied: tuple[str, str], missing: tuple[Right, ...], ungranted: tuple[Right, ...]
) -> None:
    async with running() as (server, client):
        server.denied.add(denied)
        plan = await _Attaching(server, client).plan()
    assert (plan.survey.missing_rights, plan.survey.ungranted) == (missing, ungranted)
    assert not plan.is_possible
    assert plan.changes == ()
    assert not plan.survey.is_whole


async def test_rights_that_may_not_be_given_forbid_an_attachment() -> None:
    async with running() as (server, client):
        user = _Attaching(server, client)
        server.denied |= {("create", "pods")}
        # One who may escalate and bind gives rights that are not his own.
        assert (await user.plan()).is_possible
        server.denied |= {("escalate", "roles"), ("escalate", "clusterroles")}
        plan = await user.plan()
    assert plan.survey.missing_rights == ()
    assert {(right.verb, right.resource) for right in plan.survey.ungranted} == {
        ("create", "pods"),
    }  # fmt: skip
    assert not plan.is_possible


async def test_removals_that_the_user_may_not_do_forbid_an_attachment() -> None:
    async with running() as (server, client):
        _starts(server)
        user = _Attaching(server, client)
        await user.attach(await user.plan())
        server.denied |= {("delete", "roles"), ("delete", "clusterroles")}
        assert (await user.plan()).is_possible
        plan = await user.plan(controllers=ControllersValues(create_classes=False))
    assert [right.verb for right in plan.survey.missing_rights] == ["delete"]
    assert plan.survey.missing_rights[0].names == ("moorage-controllers-classes",)
    assert not plan.is_possible
    assert plan.changes == ()
    assert plan.findings[0].text.startswith("you may not delete ")


@pytest.mark.parametrize(
    ("text", "expected"), [(_BUNDLE, True), ("", False), ("not base64!", False), ("YQ", False)]
)
def test_base64(text: str, *, expected: bool) -> None:
    assert is_base64(text) is expected


@pytest.mark.parametrize(
    ("values", "secret", "has_bundle"),
    [
        (Values(), _certificate(), True),
        (Values(), _certificate("elsewhere"), False),
        (Values(), _certificate(bundle="?"), False),
        (Values(), None, False),
        (Values(certificates=CERT_MANAGER), _certificate(), False),
    ],
)
async def test_configurations_have_the_authority_of_our_own_certificate(
    values: Values, secret: Obj | None, *, has_bundle: bool
) -> None:
    def webhook(**target: Any) -> Obj:
        return {"name": "w", "clientConfig": target}

    made: list[Obj] = [
        {"kind": kind, "webhooks": [webhook(service={"name": "s"}), webhook(url="https://x")]}
        for kind in (*_WEBHOOKS, "Other")
    ]
    async with running() as (server, client):
        if secret is not None:
            server.put(secret)
        found = await with_authority(ServedObjects(client), values, made)
    bundles = [[one["clientConfig"].get("caBundle") for one in obj["webhooks"]] for obj in found]
    bundle = _BUNDLE if has_bundle else None
    assert bundles == [[bundle, None], [bundle, None], [None, None]]
    assert "caBundle" not in made[0]["webhooks"][0]["clientConfig"]
