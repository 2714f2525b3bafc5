from __future__ import annotations

from typing import Any

import pytest

from moorage.api.nodes import Node
from moorage.api.pods import Pod
from moorage.scheduler import filters
from moorage.scheduler.nodes import NodeInfo, placed
from moorage.scheduler.query import make_query
from tests.scheduler.objects import a_node, a_pod

_EXISTS = {"operator": "Exists"}


def node_affinity(*expressions: dict[str, Any], fields: Any = ()) -> dict[str, Any]:
    term = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
    }


def on_node(name: str) -> dict[str, Any]:
    return node_affinity(fields=[{"key": "metadata.name", "operator": "In", "values": [name]}])


def reasons(pod: Pod, node: Node, *others: Pod, handler: str | None = None) -> tuple[str, ...]:
    info = NodeInfo(node)
    for other in others:
        info.add(placed(other, make_query(other)))
    rejection = filters.local_rejection(make_query(pod, handler), info)
    return rejection.reasons if rejection else ()


@pytest.mark.parametrize(
    ("pod", "node", "expected"),
    [
        (a_pod(), a_node(), ()),
        (a_pod(), a_node(unschedulable=True), ("node(s) were unschedulable",)),
        (a_pod(tolerations=[_EXISTS]), a_node(unschedulable=True), ()),
        (a_pod(node="n2"), a_node("n1"), ("node(s) didn't match the requested node name",)),
        (a_pod(), a_node(taints=("rt=kata:NoSchedule",)), ("node(s) had untolerated taint(s)",)),
        (a_pod(), a_node(taints=("gone:NoExecute",)), ("node(s) had untolerated taint(s)",)),
        (a_pod(), a_node(taints=("rt=kata:PreferNoSchedule",)), ()),
        (
            a_pod(tolerations=[{"key": "rt", "value": "kata", "effect": "NoSchedule"}]),
            a_node(taints=("rt=kata:NoSchedule",)),
            (),
        ),
        (
            a_pod(nodeSelector={"disk": "ssd"}),
            a_node(),
            ("node(s) didn't match Pod's node affinity/selector",),
        ),
        (a_pod(nodeSelector={"disk": "ssd"}), a_node(labels={"disk": "ssd"}), ()),
        (
            a_pod(affinity=node_affinity({"key": "cores", "operator": "Gt", "values": ["8"]})),
            a_node(labels={"cores": "16"}),
            (),
        ),
        (
            a_pod(affinity=node_affinity({"key": "cores", "operator": "Gt", "values": ["8"]})),
            a_node(labels={"cores": "8"}),
            ("node(s) didn't match Pod's node affinity/selector",),
        ),
        (a_pod(affinity=on_node("n1")), a_node("n1"), ()),
        (
            a_pod(affinity=on_node("n2")),
            a_node("n1"),
            ("node(s) didn't satisfy plugin(s) [NodeAffinity]",),
        ),
        (a_pod(cpu="5"), a_node(cpu="4"), ("Insufficient cpu",)),
        (a_pod(cpu="4"), a_node(cpu="4"), ()),
        (
            a_pod(cpu="5", memory="9Gi", requests={"example.com/gpu": "1"}),
            a_node(cpu="4", memory="8Gi"),
            ("Insufficient cpu", "Insufficient memory", "Insufficient example.com/gpu"),
        ),
        (a_pod(), a_node(pods="0"), ("Too many pods",)),
    ],
)
def test_node_is_rejected_with_the_text_of_kubernetes(
    pod: Pod, node: Node, expected: tuple[str, ...]
) -> None:
    assert reasons(pod, node) == expected


def test_the_first_filter_in_kubernetes_order_speaks() -> None:
    node = a_node(unschedulable=True, taints=("a:NoSchedule",), cpu="0")
    assert reasons(a_pod(cpu="1"), node) == ("node(s) were unschedulable",)


@pytest.mark.parametrize(
    ("handler", "reported", "expected"),
    [
        ("kata", ("", "runc"), ('node(s) lack runtime handler "kata"',)),
        ("kata", ("", "kata"), ()),
        ("kata", (), ()),
        ("", ("runc",), ()),
        (None, ("runc",), ()),
    ],
)
def test_a_node_without_the_handler_of_the_class_is_refused(
    handler: str | None, reported: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert reasons(a_pod(), a_node(handlers=reported), handler=handler) == expected


@pytest.mark.parametrize(
    ("wanted", "taken", "is_free"),
    [
        ("", "", False),
        ("127.0.0.1", "", False),
        ("", "127.0.0.1", False),
        ("0.0.0.0", "127.0.0.1", False),
        ("127.0.0.1", "127.0.0.1", False),
        ("127.0.0.1", "127.0.0.2", True),
    ],
)
def test_host_ports_collide_where_their_addresses_overlap(
    wanted: str, taken: str, is_free: bool
) -> None:
    other = a_pod("other", host_port=8080, host_ip=taken)
    reason_list = reasons(a_pod(host_port=8080, host_ip=wanted), a_node(), other)
    assert reason_list == (
        () if is_free else ("node(s) didn't have free ports for the requested pod ports",)
    )


def test_overhead_and_init_containers_count_against_a_node() -> None:
    pod = a_pod(
        cpu="1",
        overhead={"cpu": "250m"},
        initContainers=[{"name": "i", "resources": {"requests": {"cpu": "3900m"}}}],
    )
    assert reasons(pod, a_node(cpu="4")) == ("Insufficient cpu",)
    assert reasons(pod, a_node(cpu="4150m")) == ()


def test_only_what_removing_pods_can_cure_is_resolvable() -> None:
    info = NodeInfo(a_node(cpu="4"))
    other = a_pod("other", cpu="3")
    info.add(placed(other, make_query(other)))
    small = filters.fit(make_query(a_pod(cpu="2")), info)
    large = filters.fit(make_query(a_pod(cpu="5")), info)
    assert small is not None
    assert small.is_resolvable
    assert large is not None
    assert not large.is_resolvable


@pytest.mark.parametrize(
    ("pod", "node", "filter_", "is_resolvable"),
    [
        (a_pod(affinity=on_node("x")), a_node(), "NamedNodes", False),
        (a_pod(), a_node(unschedulable=True), "NodeUnschedulable", False),
        (a_pod(node="x"), a_node(), "NodeName", False),
        (a_pod(), a_node(taints=("a:NoSchedule",)), "TaintToleration", False),
        (a_pod(nodeSelector={"a": "b"}), a_node(), "NodeAffinity", False),
        (a_pod(runtimeClassName="k"), a_node(handlers=("runc",)), "RuntimeHandler", False),
        (a_pod(host_port=80), a_node(), "NodePorts", True),
        (a_pod(cpu="2"), a_node(cpu="2"), "NodeResourcesFit", True),
        (a_pod(cpu="3"), a_node(cpu="2"), "NodeResourcesFit", False),
        (a_pod(), a_node(pods="1"), "NodeResourcesFit", True),
    ],
)
def test_each_filter_says_whether_removing_pods_helps(
    pod: Pod, node: Node, filter_: str, is_resolvable: bool
) -> None:
    info = NodeInfo(node)
    other = a_pod("other", cpu="1", host_port=80)
    info.add(placed(other, make_query(other)))
    handler = "kata" if pod.spec.runtime_class_name else None
    rejection = filters.local_rejection(make_query(pod, handler), info)
    assert rejection is not None
    assert (rejection.filter, rejection.is_resolvable) == (filter_, is_resolvable)


def test_room_and_the_fit_filter_agree() -> None:
    for cpu, host_port in (("1", 0), ("5", 0), ("1", 8080)):
        info = NodeInfo(a_node(cpu="4"))
        other = a_pod("other", host_port=8080)
        info.add(placed(other, make_query(other)))
        query = make_query(a_pod(cpu=cpu, host_port=host_port))
        objects = filters.fit(query, info) or filters.ports(query, info)
        assert filters.has_room(query, info) == (objects is None)
