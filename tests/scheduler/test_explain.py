from __future__ import annotations

from moorage.scheduler import explain
from moorage.scheduler.explain import NodeVerdict
from tests.scheduler.objects import a_class, a_node, a_pod, anti_affinity


def verdict(nodes: tuple[NodeVerdict, ...], name: str) -> dict[str, tuple[str, ...]]:
    (found,) = [each for each in nodes if each.node_name == name]
    return {each.filter: each.reasons for each in found.objections}


def test_every_objection_of_every_node_is_told() -> None:
    pod = a_pod(
        cpu="2", runtimeClassName="kata", labels={"app": "x"}, affinity=anti_affinity({"app": "x"})
    )
    found = explain(
        pod,
        [
            a_node("good", handlers=("kata",)),
            a_node("bad", cpu="1", handlers=("runc",), taints=("x=y:NoSchedule",)),
            a_node("near", handlers=("kata",)),
        ],
        [a_pod("other", node="near", labels={"app": "x"})],
        [a_class("kata")],
    )
    assert found.handler == "kata"
    assert found.suitable_nodes == ("good",)
    assert found.summary == "1/3 nodes are available"
    assert verdict(found.nodes, "bad") == {
        "TaintToleration": ("node(s) had untolerated taint(s)",),
        "RuntimeHandler": ('node(s) lack runtime handler "kata"',),
        "NodeResourcesFit": ("Insufficient cpu",),
    }
    assert verdict(found.nodes, "near") == {
        "InterPodAffinity": ("node(s) didn't match pod anti-affinity rules",)
    }


def test_objections_carry_the_facts_and_a_remedy() -> None:
    found = explain(a_pod(cpu="2"), [a_node(cpu="1500m")], [], [])
    (objection,) = found.nodes[0].objections
    assert objection.detail == "cpu: wants 2000m, free 1500m of 1500m"
    assert "requests" in objection.remedy
    assert found.summary == "0/1 nodes are available: 1 Insufficient cpu."


def test_a_missing_class_blocks_before_any_node() -> None:
    found = explain(a_pod(runtimeClassName="kata"), [a_node()], [], [])
    assert found.handler is None
    assert found.blocked_by is not None
    assert found.summary == 'RuntimeClass "kata" not found'


def test_gates_and_an_empty_cluster_block() -> None:
    gated = explain(a_pod(schedulingGates=[{"name": "wait"}]), [a_node()], [], [])
    assert gated.blocked_by is not None
    assert gated.blocked_by.detail == "gates: wait"
    empty = explain(a_pod(), [], [], [])
    assert empty.summary == "no nodes available to schedule pods"


def test_a_running_pod_is_explained_as_if_it_were_to_be_placed_now() -> None:
    pod = a_pod(cpu="4", phase="Running")
    bound = a_pod(cpu="4", phase="Running", node="n1")
    assert explain(pod, [a_node(cpu="4")], [bound], []).suitable_nodes == ("n1",)
