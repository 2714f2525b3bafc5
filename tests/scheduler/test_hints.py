from __future__ import annotations

import pytest

from moorage.api.nodes import Node
from moorage.api.pods import Pod
from moorage.scheduler import hints
from moorage.scheduler.filters import (
    INTER_POD_AFFINITY,
    NODE_PORTS,
    NODE_RESOURCES_FIT,
    RUNTIME_HANDLER,
    TAINT_TOLERATION,
    TOPOLOGY_SPREAD,
)
from moorage.scheduler.nodes import NodeInfo, placed
from moorage.scheduler.query import PodQuery, make_query
from tests.scheduler.objects import a_node, a_pod

Group = tuple[PodQuery, frozenset[str]]


def waiting(pod: Pod, *rejected_by: str, handler: str | None = None, missing: str = "") -> Group:
    return make_query(pod, handler, missing), frozenset(rejected_by)


def info(node: Node, *pods: Pod) -> NodeInfo:
    node_info = NodeInfo(node)
    for pod in pods:
        node_info.add(placed(pod, make_query(pod)))
    return node_info


TAINTED = a_node(taints=("x:NoSchedule",))


@pytest.mark.parametrize(
    ("before", "after", "entry", "expected"),
    [
        (None, a_node(), waiting(a_pod(cpu="1"), NODE_RESOURCES_FIT), True),
        (None, a_node(cpu="1"), waiting(a_pod(cpu="2"), NODE_RESOURCES_FIT), False),
        (None, TAINTED, waiting(a_pod(), TAINT_TOLERATION), False),
        (TAINTED, a_node(), waiting(a_pod(), TAINT_TOLERATION), True),
        (a_node(), TAINTED, waiting(a_pod(), TAINT_TOLERATION), False),
        (a_node(cpu="1"), a_node(cpu="4"), waiting(a_pod(cpu="2"), NODE_RESOURCES_FIT), True),
        (
            a_node(),
            a_node(images={"app:1": 1}),
            waiting(a_pod(cpu="1"), NODE_RESOURCES_FIT),
            False,
        ),
        (
            a_node(handlers=("runc",)),
            a_node(handlers=("runc", "kata")),
            waiting(a_pod(), RUNTIME_HANDLER, handler="kata"),
            True,
        ),
        (
            a_node(handlers=("runc",)),
            a_node(handlers=("runc", "crun")),
            waiting(a_pod(), RUNTIME_HANDLER, handler="kata"),
            False,
        ),
        (None, a_node(), waiting(a_pod(), RUNTIME_HANDLER, missing="kata"), False),
        (None, TAINTED, waiting(a_pod(), INTER_POD_AFFINITY), True),
        (None, TAINTED, waiting(a_pod(), "NoNodes"), True),
    ],
)
def test_a_node_wakes_whom_it_may_take(
    before: Node | None, after: Node, entry: Group, expected: bool
) -> None:
    known = info(before) if before is not None else None
    assert hints.node_changed(known, info(after))(*entry) is expected


@pytest.mark.parametrize(
    ("node", "entry", "expected"),
    [
        (info(a_node(cpu="1")), waiting(a_pod(cpu="1"), NODE_RESOURCES_FIT), True),
        (info(a_node(cpu="1")), waiting(a_pod(cpu="2"), NODE_RESOURCES_FIT), False),
        (
            info(a_node(cpu="1"), a_pod("o", cpu="1")),
            waiting(a_pod(cpu="1"), NODE_RESOURCES_FIT),
            False,
        ),
        (info(a_node()), waiting(a_pod(), TAINT_TOLERATION), False),
        (info(TAINTED), waiting(a_pod(cpu="1"), NODE_RESOURCES_FIT), False),
        (info(TAINTED), waiting(a_pod(), TOPOLOGY_SPREAD), True),
        (None, waiting(a_pod(cpu="1"), NODE_RESOURCES_FIT), False),
    ],
)
def test_freed_room_wakes_whom_it_suffices(
    node: NodeInfo | None, entry: Group, expected: bool
) -> None:
    assert hints.room_freed(node)(*entry) is expected


def test_a_class_wakes_the_pods_that_name_it() -> None:
    entry = waiting(a_pod(runtimeClassName="kata"), RUNTIME_HANDLER, missing="kata")
    assert hints.class_changed("kata")(*entry)
    assert not hints.class_changed("gvisor")(*entry)


def test_placed_pods_and_namespaces_wake_those_that_look_at_pods() -> None:
    looks = waiting(a_pod(), INTER_POD_AFFINITY)
    fits = waiting(a_pod(), NODE_RESOURCES_FIT)
    for hint in (hints.pod_placed(), hints.namespace_changed()):
        assert hint(*looks)
        assert not hint(*fits)


@pytest.mark.parametrize(
    ("pod", "filter_", "expected"),
    [
        (a_pod(cpu="1"), NODE_RESOURCES_FIT, True),
        (a_pod(cpu="9"), NODE_RESOURCES_FIT, False),
        (a_pod(host_port=80), NODE_PORTS, True),
        (a_pod(host_port=81), NODE_PORTS, False),
        (a_pod(cpu="1"), TAINT_TOLERATION, False),
        (a_pod(cpu="1", nodeSelector={"a": "b"}), NODE_RESOURCES_FIT, False),
        (a_pod(cpu="9"), INTER_POD_AFFINITY, True),
        (a_pod(cpu="9"), TOPOLOGY_SPREAD, True),
    ],
)
def test_room_wakes_those_that_fit_now(pod: Pod, filter_: str, expected: bool) -> None:
    node = info(a_node(), a_pod("other", host_port=81))
    assert hints.room_freed(node)(*waiting(pod, filter_)) is expected
    looks_at_pods = filter_ in (INTER_POD_AFFINITY, TOPOLOGY_SPREAD)
    assert hints.room_freed(None)(*waiting(pod, filter_)) is looks_at_pods


def test_a_node_that_has_gone_wakes_those_that_are_spread() -> None:
    assert hints.node_gone()(*waiting(a_pod(), TOPOLOGY_SPREAD))
    for filter_ in (INTER_POD_AFFINITY, NODE_RESOURCES_FIT):
        assert not hints.node_gone()(*waiting(a_pod(), filter_))
        assert hints.pod_placed()(*waiting(a_pod(), filter_)) is (filter_ == INTER_POD_AFFINITY)
    assert hints.pod_placed()(*waiting(a_pod(), TOPOLOGY_SPREAD))
    assert not hints.namespace_changed()(*waiting(a_pod(), TOPOLOGY_SPREAD))


def test_new_labels_of_a_node_wake_those_that_look_at_pods() -> None:
    plain, labelled = info(a_node()), info(a_node(labels={"zone": "a"}))
    for filter_ in (INTER_POD_AFFINITY, TOPOLOGY_SPREAD):
        entry = waiting(a_pod(cpu="99"), filter_)
        assert hints.node_changed(plain, labelled)(*entry)
        assert not hints.node_changed(plain, info(a_node()))(*entry)
        assert hints.node_changed(None, plain)(*entry)
