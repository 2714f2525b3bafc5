from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.nodes import Node
from moorage.api.pods import Pod
from moorage.api.runtime_group import HANDLER_AVAILABLE, HANDLER_GATE, handler_label
from moorage.scheduler import StorageState, explain
from moorage.scheduler.explain import Explanation, NodeVerdict, Objection
from tests.api.claims.objects import a_claim, a_volume
from tests.scheduler.objects import a_class, a_node, a_pod, anti_affinity, pod_affinity, spread


def suitable(explanation: Explanation) -> tuple[str, ...]:
    return tuple(node.node_name for node in explanation.nodes if node.is_suitable)


def verdict(nodes: tuple[NodeVerdict, ...], name: str) -> dict[str, tuple[str, ...]]:
    (node_verdict,) = [node for node in nodes if node.node_name == name]
    return {objection.filter: objection.reasons for objection in node_verdict.objections}


def test_every_objection_of_every_node_is_returned() -> None:
    pod = a_pod(
        cpu="2", runtimeClassName="kata", labels={"app": "x"}, affinity=anti_affinity({"app": "x"})
    )
    explanation = explain(
        pod,
        [
            a_node("good", handlers=("kata",)),
            a_node("bad", cpu="1", handlers=("runc",), taints=("x=y:NoSchedule",)),
            a_node("near", handlers=("kata",)),
        ],
        [a_pod("other", node="near", labels={"app": "x"})],
        [a_class("kata")],
    )
    assert explanation.handler == "kata"
    assert suitable(explanation) == ("good",)
    assert explanation.summary == "1/3 nodes are available"
    assert verdict(explanation.nodes, "bad") == {
        "TaintToleration": ("node(s) had untolerated taint(s)",),
        "RuntimeHandler": ('node(s) lack runtime handler "kata"',),
        "NodeResourcesFit": ("Insufficient cpu",),
    }
    assert verdict(explanation.nodes, "near") == {
        "InterPodAffinity": ("node(s) didn't match pod anti-affinity rules",)
    }


def test_objections_carry_the_facts_and_a_remedy() -> None:
    explanation = explain(a_pod(cpu="2"), [a_node(cpu="1500m")], [], [])
    (objection,) = explanation.nodes[0].objections
    assert objection.detail == "cpu: wants 2000m, free 1500m of 1500m"
    assert "requests" in objection.remedy
    assert explanation.summary == "0/1 nodes are available: 1 Insufficient cpu."


def test_a_missing_class_blocks_before_any_node() -> None:
    explanation = explain(a_pod(runtimeClassName="kata"), [a_node()], [], [])
    assert explanation.handler is None
    assert explanation.blocked_by is not None
    assert explanation.summary == 'RuntimeClass "kata" not found'


def test_gates_and_an_empty_cluster_block() -> None:
    gated = explain(a_pod(schedulingGates=[{"name": "wait"}]), [a_node()], [], [])
    assert gated.blocked_by is not None
    assert gated.blocked_by.detail == "gates: wait"
    empty = explain(a_pod(), [], [], [])
    assert empty.summary == "no nodes available to schedule pods"


def test_a_running_pod_is_explained_as_if_it_were_to_be_placed_now() -> None:
    pod = a_pod(cpu="4", phase="Running")
    bound = a_pod(cpu="4", phase="Running", node="n1")
    assert suitable(explain(pod, [a_node(cpu="4")], [bound], [])) == ("n1",)


_GATES = Objection(
    "SchedulingGates", ("Scheduling is blocked due to non-empty scheduling gates",),
    "gates: wait, and-wait",
    "remove the gates from spec.schedulingGates, or let the controller that set them do so",
)  # fmt: skip
_MISSING = Objection(
    "RuntimeHandler", ('RuntimeClass "kata" not found',), "",
    "create the RuntimeClass 'kata', or name one that exists (kubectl get runtimeclass)",
)  # fmt: skip
_EMPTY = Objection(
    "NoNodes",
    ("no nodes available to schedule pods",),
    "",
    "stop the cluster, then `moor up` as root without --no-node",
)


@pytest.mark.parametrize(
    ("pod", "nodes", "expected"),
    [
        (a_pod(schedulingGates=[{"name": "wait"}, {"name": "and-wait"}]), [a_node()], _GATES),
        (a_pod(schedulingGates=[{"name": "wait"}, {"name": "and-wait"}],
               runtimeClassName="kata"), [], _GATES),
        (a_pod(runtimeClassName="kata"), [a_node()], _MISSING),
        (a_pod(runtimeClassName="kata"), [], _MISSING),
        (a_pod(), [], _EMPTY),
        (a_pod(), [a_node()], None),
    ],
)  # fmt: skip
def test_what_holds_a_pod_back_before_any_node(
    pod: Pod, nodes: list[Node], expected: Objection | None
) -> None:
    explanation = explain(pod, nodes, [], [])
    assert explanation.blocked_by == expected
    assert explanation.summary == (expected.reasons[0] if expected else "1/1 nodes are available")


def held(message: str = "", class_name: str = "kata") -> Pod:
    """A pod with our gate, and what the controller of gates says of it."""
    conditions = [{"type": HANDLER_AVAILABLE, "status": "False", "message": message}]
    gates = [{"name": HANDLER_GATE}]
    pod = a_pod(schedulingGates=gates, runtimeClassName=class_name)
    raw = msgspec.to_builtins(pod)
    raw.setdefault("status", {})["conditions"] = conditions if message else []
    return msgspec.convert(raw, Pod)


def labelled(name: str, *handlers: str) -> Node:
    raw = msgspec.to_builtins(a_node(name))
    raw["metadata"]["labels"] = {handler_label(handler): "true" for handler in handlers}
    return msgspec.convert(raw, Node)


def test_a_pod_held_for_its_handler_says_what_it_waits_for_and_how_to_add_the_runtime() -> None:
    message = 'waiting for a node with the handler "kata" of RuntimeClass kata: none has it'
    explanation = explain(
        held(message),
        [labelled("a", "runc"), labelled("b")],
        [],
        [a_class("kata")],
        filters_by_handler=False,
    )
    blocked = explanation.blocked_by
    assert blocked is not None
    assert explanation.summary == message
    assert blocked.detail == "gates: runtime.moorage.dev/handler"
    assert '"kata" of RuntimeClass kata' in blocked.remedy
    assert "`moor runtime add kata`" in blocked.remedy
    assert "remove" not in blocked.remedy
    lack = ("the pod's handler was not found to work there",)
    for name in ("a", "b"):
        assert verdict(explanation.nodes, name)["RuntimeHandler"] == lack


def test_a_pod_is_held_although_other_nodes_have_its_handler() -> None:
    explanation = explain(
        held(), [labelled("a", "kata"), labelled("b")], [], [a_class("kata")],
        filters_by_handler=False,
    )  # fmt: skip
    assert explanation.summary == 'waiting for a node with the handler "kata" of RuntimeClass kata'
    assert explanation.blocked_by is not None
    assert "`moor runtimes features`" in explanation.blocked_by.remedy
    assert "RuntimeHandler" not in verdict(explanation.nodes, "a")
    assert "RuntimeHandler" in verdict(explanation.nodes, "b")


def failing(node: Node, handler: str) -> Node:
    raw = msgspec.to_builtins(node)
    raw["status"]["conditions"] = [
        {"type": f"{handler}.runtime.moorage.dev/Working", "status": "False",
         "message": "no guest kernel; set its path"}
    ]  # fmt: skip
    return msgspec.convert(raw, Node)


@pytest.mark.parametrize("pod", [held(), a_pod(runtimeClassName="kata")])
def test_a_handler_whose_probe_fails_is_not_to_be_installed(pod: Pod) -> None:
    nodes = [failing(a_node("a", handlers=("runc",)), "kata"), a_node("b", handlers=("runc",))]
    explanation = explain(pod, nodes, [], [a_class("kata")])
    first, second = (
        next(one for one in node.objections if one.filter == "RuntimeHandler")
        for node in explanation.nodes
    )
    assert first.detail == "its probe fails: no guest kernel; set its path"
    assert "install" not in first.remedy
    assert second.remedy.startswith("install and configure the runtime")
    if explanation.blocked_by is not None:
        assert 'node a has the handler "kata", and its probe fails: no guest kernel' in (
            explanation.blocked_by.remedy
        )


@pytest.mark.parametrize(
    ("pod", "remedy"),
    [
        (held(class_name="gone"), "create the RuntimeClass gone, or delete the pod"),
        (held(class_name=""), "is for pods with a RuntimeClass: remove it"),
    ],
)
def test_a_gate_without_a_class_behind_it_has_another_remedy(pod: Pod, remedy: str) -> None:
    explanation = explain(pod, [labelled("a")], [], [])
    assert explanation.blocked_by is not None
    assert remedy in explanation.blocked_by.remedy


def _affinity_to(*names: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": list(names)}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.parametrize(
    ("pod", "node", "filter_", "detail", "remedy"),
    [
        (a_pod(affinity=_affinity_to("x")), a_node(), "NamedNodes", "", "the pod's required node"),
        (a_pod(), a_node(unschedulable=True), "NodeUnschedulable", "", "kubectl uncordon"),
        (a_pod(node="other"), a_node(), "NodeName", "", "spec.nodeName asks"),
        (a_pod(), a_node(taints=("a=b:NoSchedule", "c:NoExecute", "d:PreferNoSchedule")),
         "TaintToleration", "taints: a=b:NoSchedule, c:NoExecute", "tolerate the taint"),
        (a_pod(nodeSelector={"a": "b"}), a_node(), "NodeAffinity", "", "label the node as"),
        (a_pod(runtimeClassName="kata"), a_node(handlers=("runc", "")), "RuntimeHandler",
         'handlers of the node: "" (default), runc', "install and configure the runtime"),
        (a_pod(host_port=80), a_node(), "NodePorts", "taken: 80/TCP", "use another hostPort"),
        (a_pod(cpu="2", memory="2Gi"), a_node(pods="1", cpu="2500m", memory="1Gi"),
         "NodeResourcesFit",
         "pods: 1 of 1 used; cpu: wants 2000m, free 1500m of 2500m; "
         f"memory: wants {2 << 30}, free {1 << 30} of {1 << 30}", "lower the pod's requests"),
        (a_pod(requests={"example.com/gpu": "2"}), a_node(), "NodeResourcesFit",
         "example.com/gpu: wants 2, free 0 of 0", "lower the pod's requests"),
        (a_pod(topologySpreadConstraints=[spread({"a": "b"})], labels={"a": "b"}), a_node(),
         "PodTopologySpread", "", "raise maxSkew"),
        (a_pod(affinity=pod_affinity({"a": "b"})), a_node(), "InterPodAffinity", "",
         "change the pod affinity rules"),
    ],
)  # fmt: skip
def test_each_objection_has_its_facts_and_its_remedy(
    pod: Pod, node: Node, filter_: str, detail: str, remedy: str
) -> None:
    other = a_pod("other", cpu="1", node="n1", host_port=80)
    explanation = explain(pod, [node], [other], [a_class("kata")])
    objection = explanation.nodes[0].objections[0]
    assert (objection.filter, objection.detail) == (filter_, detail)
    assert objection.remedy.startswith(remedy)
    assert not explanation.nodes[0].is_suitable
    assert explanation.summary.startswith("0/1 nodes are available: 1 ")


def test_handlers_are_no_objection_if_not_filtered_by() -> None:
    pod, node = a_pod(runtimeClassName="kata"), a_node(handlers=("runc",))
    explanation = explain(pod, [node], [], [a_class("kata")], filters_by_handler=False)
    assert (suitable(explanation), explanation.handler) == (("n1",), "kata")


def test_nodes_are_in_order_and_pods_that_have_ended_take_no_room() -> None:
    ended = a_pod("ended", cpu="4", node="n1", phase="Succeeded")
    waiting = a_pod("waiting", cpu="4")
    nodes = [a_node("n2"), a_node("n1")]
    explanation = explain(a_pod(cpu="4"), nodes, [ended, waiting], [])
    assert suitable(explanation) == ("n1", "n2")


def test_labels_of_namespaces_count_for_affinity() -> None:
    rule = pod_affinity({"app": "db"})
    term = rule["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    term["namespaceSelector"] = {"matchLabels": {"team": "a"}}
    db = a_pod("db", namespace="data", node="n1", labels={"app": "db"})
    pod = a_pod(affinity=rule)
    assert not suitable(explain(pod, [a_node()], [db], []))
    labels = {"data": {"team": "a"}}
    assert suitable(explain(pod, [a_node()], [db], [], namespace_labels=labels)) == ("n1",)


def test_volumes_are_explained_too() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    pod, storage = a_pod(volumes=volumes), StorageState()
    blocked = explain(pod, [a_node()], [], [], storage=storage)
    assert blocked.blocked_by is not None
    assert blocked.summary == 'persistentvolumeclaim "data" not found'
    assert "kubectl describe pvc" in blocked.blocked_by.remedy
    done = {"pv.kubernetes.io/bind-completed": "yes"}
    storage.set_claim(a_claim(volume="pv", annotations=done, phase="Bound"))
    storage.set_volume(a_volume(node="n2"))
    explanation = explain(pod, [a_node("n1"), a_node("n2")], [], [], storage=storage)
    assert suitable(explanation) == ("n2",)
    assert verdict(explanation.nodes, "n1") == {
        "VolumeBinding": ("node(s) didn't match PersistentVolume's node affinity",)
    }
