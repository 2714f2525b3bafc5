"""Detaching: what it removes in which order, what stays, and which pods it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from moorage.api.clock import SystemClock
from moorage.api.meta import ObjectMeta
from moorage.api.pods import Pod, PodStatus
from moorage.attach.class_uses import ClassUses, Release
from moorage.attach.detach_options import DetachOptions, Leftover
from moorage.attach.detachment import detach, plan_detachment, shortened, unended
from moorage.attach.errors import AttachError
from moorage.attach.manifests import objects
from moorage.attach.manifests.identity import labels
from moorage.attach.needed_rights import Right
from moorage.attach.values import AgentValues, Values
from moorage.wire.client.rest import Client
from tests.attach.object_server import Obj, ObjectServer, running
from tests.wire.client.fake_api import refusal

GROUP = "runtime.moorage.dev"
_BY_HAND = "on each node: moor runtime remove {} --cri ENDPOINT --data-dir /var/lib/moorage-agent"
_AGENT = "/apis/apps/v1/namespaces/moorage-system/daemonsets/moorage-runtime-agent"


def obj(api_version: str, kind: str, name: str, namespace: str = "", **fields: Any) -> Obj:
    metadata = {"name": name, **fields.pop("metadata", {})}
    metadata |= {"namespace": namespace} if namespace else {}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def pod(name: str, namespace: str = "shop", **fields: Any) -> Obj:
    spec = {"containers": [], **fields.pop("spec", {})}
    return obj("v1", "Pod", name, namespace, spec=spec, **fields)


def runtime_class(name: str, handler: str = "kata", **labels: str) -> Obj:
    metadata = {"labels": {f"{GROUP}/{key}": text for key, text in labels.items()}}
    return obj("node.k8s.io/v1", "RuntimeClass", name, metadata=metadata, handler=handler)


def installation(name: str, **fields: Any) -> Obj:
    finalizers = [f"{GROUP}/installation"]
    spec = {"handler": f"h-{name}", "sources": [], **fields}
    metadata = {"finalizers": finalizers}
    version = f"{GROUP}/v1alpha1"
    return obj(version, "RuntimeInstallation", name, metadata=metadata, spec=spec)


def attached(server: ObjectServer, values: Values | None = None) -> list[Obj]:
    """Have what an attachment makes, and return it."""
    return [server.put(one) for one in objects(values or Values())]


async def detached(client: Client, said: list[str] | None = None, **options: Any) -> dict[str, str]:
    """Detach, and return why each thing is left."""
    lines = [] if said is None else said
    chosen = DetachOptions(said=lines.append, **{"timeout_s": 5, **options})
    return {one.what: one.why for one in await detach(client, SystemClock(), chosen)}


def _if(is_given: bool, option: str) -> dict[str, Any]:
    """Return the option only where it is given, so that its default is tested otherwise."""
    return {option: True} if is_given else {}


def test_pods_that_have_ended_are_not_waited_for() -> None:
    phases = ("Running", "Failed", "Pending", "Succeeded", "")
    pods = [
        Pod(metadata=ObjectMeta(name=f"pod{index}"), status=PodStatus(phase=phase))
        for index, phase in enumerate(phases)
    ]
    assert unended(pods) == ["pod0", "pod2", "pod4"]


@pytest.mark.parametrize(("count", "more"), [(1, ""), (20, ""), (21, " and 1 more")])
def test_the_first_twenty_names_are_shown(count: int, more: str) -> None:
    names = [f"n{number}" for number in range(count)]
    assert shortened(names) == ", ".join(names[:20]) + more


async def test_all_that_was_attached_is_removed_in_an_order_that_blocks_no_pod() -> None:
    said: list[str] = []
    async with running() as (server, client):
        made = attached(server)
        namespace = "moorage-system"
        ended = obj("v1", "Pod", "moorage-test-answers", namespace, spec={})
        secret = obj("v1", "Secret", "moorage-webhook-tls", namespace)
        lease = obj("coordination.k8s.io/v1", "Lease", "moorage-controllers", namespace)
        record = obj("v1", "ConfigMap", "moorage-runtime-classes", "kube-system")
        users = [
            obj("v1", "Secret", "moorage-webhook-tls", "shop"),
            obj("v1", "ConfigMap", "settings", "shop"),
        ]
        for one in (ended, secret, lease, record, *users):
            server.put(one)
        assert await detached(client, said) == {}
        assert sorted(one["metadata"]["name"] for one in server.objects.values()) == [
            "moorage-webhook-tls",
            "settings",
        ]
        assert (await plan_detachment(client)).is_empty
    removed = [line.split()[0] for line in said if line.endswith(" removed")]
    assert len(said) == len(removed) == len(made) + 4
    first = {kind: removed.index(kind) for kind in removed}
    last = {kind: position for position, kind in enumerate(removed)}
    assert last["ValidatingWebhookConfiguration"] < first["DaemonSet"]
    assert last["Deployment"] < first["ClusterRole"]
    assert last["RoleBinding"] < first["Role"]
    assert last["ClusterRoleBinding"] < first["ServiceAccount"]
    assert last["ServiceAccount"] < first["Namespace"] < first["CustomResourceDefinition"]
    # What its parts made goes while the objects are there by which the namespace is found.
    assert first["Lease"] < first["ServiceAccount"]


async def test_agents_remove_their_directory_before_they_go() -> None:
    async with running() as (server, client):
        attached(server)
        await detached(client)
        patch = next(
            body
            for write, body in zip(server.writes, server.bodies, strict=True)
            if write == ("PATCH", _AGENT)
        )
        (container,) = patch["spec"]["template"]["spec"]["containers"]
        (made,) = [one for one in objects(Values()) if one["kind"] == "DaemonSet"]
        (before,) = made["spec"]["template"]["spec"]["containers"]
        arguments = container["args"]
        assert arguments[: len(before["args"])] == before["args"]
        assert arguments[len(before["args"])] == "--remove-data"
        port = int(arguments[-1].removeprefix("--health-port="))
        assert container["name"] == before["name"]
        assert container["readinessProbe"]["httpGet"]["port"] == port
        strategy = patch["spec"]["updateStrategy"]
        assert strategy == {"rollingUpdate": {"maxUnavailable": "100%"}}
        assert server.writes.index(("PATCH", _AGENT)) < server.writes.index(("DELETE", _AGENT))


async def test_agents_that_remove_their_directory_already_are_not_started_again() -> None:
    async with running() as (server, client):
        for one in objects(Values(agent=AgentValues(installs_runtimes=False))):
            if one["kind"] == "DaemonSet":
                one["spec"]["template"]["spec"]["containers"][0]["args"] += ["--remove-data"]
            server.put(one)
        left = await detached(client)
        assert ("PATCH", _AGENT) not in server.writes
    assert left == {
        "the empty directory /var/lib/moorage-agent on each node": "agents that install nothing "
        "have no capability to remove it"
    }


async def test_a_node_whose_agent_does_not_answer_keeps_its_directory() -> None:
    async with running() as (server, client):
        for one in attached(server):
            if one["kind"] == "DaemonSet":
                server.put(one | {"status": {"desiredNumberScheduled": 1}})
        agent = {"labels": labels("runtime-agent")}
        stuck = pod("agent-1", "moorage-system", metadata=agent, spec={"nodeName": "n1"})
        server.put(stuck)
        server.logs["agent-1"] = "2026-01-01T00:00:00Z warning agent.removal directory is busy\n"

        def after_write(method: str, written: Obj) -> None:
            if method == "DELETE" and written["kind"] == "DaemonSet":
                server.remove(stuck)

        server.after_write = after_write
        left = await detached(client, timeout_s=0.8)
    assert left == {
        "/var/lib/moorage-agent on node n1": "its agent did not remove it: directory is busy"
    }


async def test_traces_on_objects_of_others_are_removed() -> None:
    label, gate = {f"{GROUP}/runc": "true"}, {"name": f"{GROUP}/handler"}
    said: list[str] = []
    async with running() as (server, client):
        conditions = [{"type": f"kata.{GROUP}/Working"}, {"type": "Ready"}]
        marked = {"labels": label | {"own": "a"}}
        annotated = {"annotations": {f"{GROUP}/previous-class": "runc", "own": "a"}}
        nodes = [
            obj("v1", "Node", name, metadata=marked, status={"conditions": conditions})
            for name in "abc"
        ]
        others = [
            obj("v1", "Namespace", "shop", metadata=annotated),
            obj("apps/v1", "Deployment", "d", "shop", metadata=annotated, spec={}),
            obj("apps/v1", "StatefulSet", "s", "shop", metadata=annotated, spec={}),
            obj("apps/v1", "DaemonSet", "e", "shop", metadata=annotated, spec={}),
            obj("apps/v1", "ReplicaSet", "r", "shop", metadata=annotated, spec={}),
            obj("batch/v1", "CronJob", "c", "shop", metadata=annotated,
                spec={"jobTemplate": {}}),
            pod("p", metadata=annotated, spec={"schedulingGates": [gate, {"name": "own/gate"}]}),
            obj("node.k8s.io/v1", "RuntimeClass", "mine", metadata=marked, handler="h"),
        ]  # fmt: skip
        for one in (*nodes, *others):
            server.put(one)
        assert await detached(client, said) == {}
        for name in "abc":
            node = server.of("Node")[name]
            assert node["metadata"]["labels"] == {"own": "a"}
            assert node["status"]["conditions"] == [{"type": "Ready"}]
        for one in others:
            kind, name = one["kind"], one["metadata"]["name"]
            metadata = server.of(kind)[name]["metadata"]
            own = {
                field: metadata[field] for field in ("labels", "annotations") if field in metadata
            }
            assert list(own.values()) == [{"own": "a"}], kind
        assert server.of("Pod")["p"]["spec"]["schedulingGates"] == [{"name": "own/gate"}]
    assert said == ["Pod shop/p: scheduling gate lifted"]


_POD = "/api/v1/namespaces/shop/pods/p"
_GATED: Mapping[str, Any] = {"schedulingGates": [{"name": f"{GROUP}/handler"}]}


@pytest.mark.parametrize("code", [(409, "Conflict"), (422, "Invalid")])
@pytest.mark.parametrize(("times", "is_lifted"), [(1, True), (4, True), (5, False)])
async def test_a_gate_is_lifted_from_a_pod_that_changes_meanwhile(
    code: tuple[int, str], times: int, *, is_lifted: bool
) -> None:
    async with running() as (server, client):
        server.put(pod("p", spec=_GATED))
        server.failures["PATCH", _POD] = [refusal(*code)] * times
        left = await detached(client)
        assert server.of("Pod")["p"]["spec"]["schedulingGates"] == (
            [] if is_lifted else _GATED["schedulingGates"]
        )
    why = {"scheduling gate of Pod shop/p": "it changes all the time"}
    assert left == ({} if is_lifted else why)


@pytest.mark.parametrize("answers", [[refusal(404, "NotFound")], [refusal(409, "Conflict")]])
async def test_a_pod_that_is_gone_needs_no_gate_lifted(answers: list[Any]) -> None:
    async with running() as (server, client):
        server.put(pod("p", spec=_GATED))
        server.failures["PATCH", _POD] = answers
        server.failures["GET", _POD] = [refusal(404, "NotFound")]
        assert await detached(client) == {}


async def test_an_object_that_is_gone_meanwhile_has_no_traces() -> None:
    async with running() as (server, client):
        labelled = {"labels": {f"{GROUP}/runc": "true"}}
        for name in "ab":
            server.put(obj("v1", "Node", name, metadata=labelled))
        server.failures["PATCH", "/api/v1/nodes/a"] = [refusal(404, "NotFound")]
        assert await detached(client) == {}
        assert server.of("Node")["b"]["metadata"]["labels"] == {}


@pytest.mark.parametrize(("count", "pods"), [(0, ""), (1, "1 pod"), (3, "3 pods")])
async def test_pods_that_no_node_can_take_any_more_are_counted(count: int, pods: str) -> None:
    terms = [{"matchExpressions": [{"key": f"{GROUP}/kata", "operator": "Exists"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    async with running() as (server, client):
        server.put(pod("free"))
        for number in range(count):
            server.put(pod(f"p{number}", spec={"affinity": {"nodeAffinity": required}}))
        left = await detached(client)
    assert list(left) == ([f"node affinity of {pods} that no node took"] if count else [])


@pytest.mark.parametrize("removes_classes", [False, True])
async def test_managed_classes_go_unless_something_uses_them(*, removes_classes: bool) -> None:
    said: list[str] = []
    async with running() as (server, client):
        server.put(pod("a", spec={"runtimeClassName": "used"}))
        server.put(pod("b", spec={"runtimeClassName": "used"}, status={"phase": "Failed"}))
        used = runtime_class("used", managed="true")
        used["metadata"]["labels"] |= {"app.kubernetes.io/managed-by": "moorage", "own": "a"}
        server.put(used)
        server.put(runtime_class("unused", managed="true"))
        server.put(runtime_class("mine"))
        server.put(runtime_class("probe", probe="x", managed="true"))
        server.put(obj("v1", "ConfigMap", "moorage-runtime-classes", "kube-system"))
        assert (await plan_detachment(client)).classes == {
            "used": ClassUses(1), "unused": ClassUses(),
        }  # fmt: skip
        left = await detached(client, said, **_if(removes_classes, "removes_classes"))
        classes = server.of("RuntimeClass")
        assert sorted(classes) == (["mine"] if removes_classes else ["mine", "used"])
        if not removes_classes:
            assert classes["used"]["metadata"]["labels"] == {"own": "a"}
    kept = "1 pod uses it; it is yours now: kubectl delete runtimeclass used"
    assert left == ({} if removes_classes else {"RuntimeClass used": kept})
    record = "ConfigMap kube-system/moorage-runtime-classes removed"
    removed = ["RuntimeClass unused removed", *["RuntimeClass used removed"] * removes_classes]
    assert said == [*removed, record]


@pytest.mark.parametrize("removes_namespaces", [False, True])
async def test_a_namespace_with_objects_of_others_stays_unless_asked_for(
    *, removes_namespaces: bool
) -> None:
    async with running() as (server, client):
        attached(server)
        server.put(obj("v1", "Secret", "mine", "moorage-system"))
        assert (await plan_detachment(client)).foreign == {"moorage-system": ["Secret mine"]}
        left = await detached(client, **_if(removes_namespaces, "removes_namespaces"))
        stays = [] if removes_namespaces else ["moorage-system"]
        assert sorted(server.of("Namespace")) == stays
    why = "others' objects are in it: Secret mine; remove them and run this again, or give "
    assert left == {f"Namespace {name}": f"{why}--remove-namespaces" for name in stays}


async def test_installed_runtimes_are_undone_before_the_agents_go() -> None:
    said: list[str] = []
    async with running() as (server, client):
        attached(server)
        server.put(installation("i"))

        def watched(plural: str) -> None:
            if plural == "runtimeinstallations":
                server.remove(server.of("RuntimeInstallation")["i"])

        server.on_watch = watched
        assert await detached(client, said) == {}
    assert said.index("RuntimeInstallation i removed") < said.index(
        "DaemonSet moorage-system/moorage-runtime-agent removed"
    )


async def test_kinds_and_installed_runtimes_stay_if_asked_for() -> None:
    said: list[str] = []
    async with running() as (server, client):
        attached(server)
        server.put(installation("i"))
        left = await detached(client, said, keeps_definitions=True, leaves_runtimes=True)
        definitions = server.of("CustomResourceDefinition")
        assert len(definitions) == len(
            [one for one in objects(Values()) if one["kind"] == "CustomResourceDefinition"]
        )
        assert server.of("RuntimeInstallation") == {}
    again = "as you asked; agents that `moor attach` starts again remove it, or "
    assert left == {
        "/var/lib/moorage-agent on nodes": "runtimes that were left are in it",
        "what RuntimeInstallation i installed on nodes": again + _BY_HAND.format("h-i"),
        f"the kinds of {GROUP}": "as you asked",
    }
    # Agents that see an installation gone undo it, so they go first.
    agent = said.index("DaemonSet moorage-system/moorage-runtime-agent removed")
    assert agent < said.index("RuntimeInstallation i removed")


async def test_objects_of_our_kinds_go_without_a_controller_to_finish_them() -> None:
    version = f"{GROUP}/v1alpha1"
    async with running() as (server, client):
        attached(server)
        others = {"labels": labels()}
        definition = obj("apiextensions.k8s.io/v1", "CustomResourceDefinition", "x.example.com",
                         metadata=others, spec={"names": {"kind": "X"}})  # fmt: skip
        server.put(definition)
        for name, finalizers in (
            ("both", [f"{GROUP}/rollout", "own/finalizer"]), ("ours", [f"{GROUP}/rollout"]),
            ("theirs", ["own/finalizer"]), ("none", []),
        ):  # fmt: skip
            metadata = {"finalizers": finalizers}
            server.put(obj(version, "RuntimeRollout", name, metadata=metadata, spec={}))
        users = await plan_detachment(client)
        assert [one["metadata"]["name"] for one in users.users_objects] == [
            "both", "none", "ours", "theirs",
        ]  # fmt: skip
        left = await detached(client)
        rollouts = server.of("RuntimeRollout")
        assert {name: one["metadata"]["finalizers"] for name, one in rollouts.items()} == {
            "both": ["own/finalizer"], "ours": [], "theirs": ["own/finalizer"], "none": [],
        }  # fmt: skip
        patched = [path for method, path in server.writes if "rollouts/" in path]
        assert [path.rpartition("/")[2] for path in patched] == ["both", "ours"]
        assert list(server.of("CustomResourceDefinition")) == ["x.example.com"]
    assert left == {
        "CustomResourceDefinition x.example.com": "it has Moorage's label, but no attachment "
        "made it"
    }


async def test_a_definition_that_an_earlier_version_attached_goes_too() -> None:
    said: list[str] = []
    fields = [{"manager": "moorage-attach", "operation": "Apply"}]
    metadata = {"labels": labels(), "managedFields": fields}
    async with running() as (server, client):
        attached(server)
        server.put(
            obj("apiextensions.k8s.io/v1", "CustomResourceDefinition", f"runtimeplans.{GROUP}",
                metadata=metadata, spec={"names": {"kind": "RuntimePlan"}})
        )  # fmt: skip
        assert await detached(client, said) == {}
        assert server.of("CustomResourceDefinition") == {}
    assert f"CustomResourceDefinition runtimeplans.{GROUP} removed" in said


async def test_what_ends_too_late_is_named() -> None:
    async with running() as (server, client):
        attached(server)
        ours = {"labels": labels()}
        for name, phase in (("b", "Running"), ("a", "Pending"), ("ended", "Failed")):
            server.put(pod(name, "moorage-system", metadata=ours, status={"phase": phase}))
        with pytest.raises(AttachError) as failure:
            await detached(client, timeout_s=0.8)
    assert str(failure.value) == (
        "pods of namespace moorage-system have not ended after 0.8 s: a, b; see kubectl describe "
        "pod, and run it again"
    )


@pytest.mark.parametrize(
    ("kind", "plural"),
    [("Namespace", "namespaces"), ("CustomResourceDefinition", "customresourcedefinitions")],
)
async def test_what_is_held_by_a_finalizer_is_named(kind: str, plural: str) -> None:
    async with running() as (server, client):
        for one in attached(server):
            if one["kind"] == kind:
                held = one
                one["metadata"]["finalizers"] = ["own/finalizer"]
        name = held["metadata"]["name"]
        with pytest.raises(AttachError, match=f"{plural} .*{name}.* are not gone after 0.8 s"):
            await detached(client, timeout_s=0.8)


async def test_the_plan_has_what_is_there() -> None:
    async with running() as (server, client):
        made = attached(server)
        role = server.of("ClusterRole")["moorage-webhook"]
        notes = {"meta.helm.sh/release-name": "m", "meta.helm.sh/release-namespace": "n"}
        role["metadata"]["annotations"] = notes
        server.put(installation("i"))
        server.put(runtime_class("one", "h-i"))
        server.put(pod("p", spec={"runtimeClassName": "one", "nodeName": "n1"}))
        plan = await plan_detachment(client)
        left = await detached(client, leaves_runtimes=True)
    assert {one["metadata"]["name"] for one in plan.objects} == {
        one["metadata"]["name"] for one in made
    }
    assert [one["metadata"]["name"] for one in plan.installations] == ["i"]
    assert plan.pods == {"i": ("shop/p",)}
    assert plan.releases == (Release("m", "n"),)
    assert (plan.foreign, plan.missing_rights, plan.is_empty) == ({}, (), False)
    record = Leftover("Helm's record of the release m", "this removes it: helm uninstall m -n n")
    assert left[record.what] == record.why


@pytest.mark.parametrize(
    ("denied", "missing"),
    [
        (("list", "nodes"), Right("list", "", "nodes")),
        (("patch", "nodes/status"), Right("patch", "", "nodes/status")),
        (("delete", "leases"),
         Right("delete", "coordination.k8s.io", "leases", "moorage-system",
               ("moorage-controllers",))),
        (("delete", "configmaps"),
         Right("delete", "", "configmaps", "kube-system", ("moorage-runtime-classes",))),
    ],
)  # fmt: skip
async def test_rights_that_are_missing_are_in_the_plan(
    denied: tuple[str, str], missing: Right
) -> None:
    async with running() as (server, client):
        nothing = await plan_detachment(client)
        server.denied.add(denied)
        is_for_looking = denied[0] == "list"
        assert (await plan_detachment(client)).missing_rights == (missing,) * is_for_looking
        made = attached(server)
        plan = await plan_detachment(client)
    assert nothing.is_empty
    assert plan.missing_rights == (missing,)
    assert not plan.is_empty
    assert len(plan.objects) == (0 if is_for_looking else len(made))
