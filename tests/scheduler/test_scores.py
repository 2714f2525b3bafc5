from __future__ import annotations

import pytest

from moorage.api.nodes import Node
from moorage.api.pods import Pod
from moorage.scheduler import scores
from moorage.scheduler.nodes import NodeInfo, placed
from moorage.scheduler.query import make_query
from tests.scheduler.objects import a_node, a_pod

GIB = 1024**3
MIB = 1024**2


def info(node: Node, *pods: Pod) -> NodeInfo:
    node_info = NodeInfo(node)
    for pod in pods:
        node_info.add(placed(pod, make_query(pod)))
    return node_info


@pytest.mark.parametrize(
    ("pod", "others", "expected"),
    [
        (a_pod(cpu="1", memory="2Gi"), [], (75 + 75) // 2),
        (a_pod(cpu="2", memory="2Gi"), [], (50 + 75) // 2),
        (a_pod(cpu="2", memory="2Gi"), [a_pod("o", cpu="2", memory="4Gi")], (0 + 25) // 2),
        # A container that asks for nothing is taken to use 100m and 200Mi.
        (a_pod(), [], (97 + 97) // 2),
        (a_pod(cpu="8"), [], (0 + 97) // 2),
    ],
)
def test_the_free_share_counts(pod: Pod, others: list[Pod], expected: int) -> None:
    node = info(a_node(cpu="4", memory="8Gi"), *others)
    assert scores.least_allocated(make_query(pod), node) == expected


@pytest.mark.parametrize(
    ("pod", "others", "expected"),
    [
        (a_pod(), [], 0),
        (a_pod(cpu="1", memory="2Gi"), [], 75),
        (a_pod(cpu="4"), [], 50),
        (a_pod(memory="8Gi"), [a_pod("o", cpu="4")], 100),
    ],
)
def test_evening_out_counts(pod: Pod, others: list[Pod], expected: int) -> None:
    node = info(a_node(cpu="4", memory="8Gi"), *others)
    assert scores.balanced(make_query(pod), node) == expected


@pytest.mark.parametrize(
    ("size", "nodes_with_it", "expected"),
    [
        (10 * MIB, 1, 0),
        (1000 * MIB, 1, 100),
        (1000 * MIB, 2, 100),
        (500 * MIB, 2, 100 * (500 - 23) // (1000 - 23)),
    ],
)
def test_images_count_between_small_and_large(size: int, nodes_with_it: int, expected: int) -> None:
    node = info(a_node(images={"app:1": size}))
    score = scores.image_locality(
        make_query(a_pod()), node, {"app:1": nodes_with_it}, nodes_with_it
    )
    assert score == expected


def test_an_image_few_nodes_have_counts_less() -> None:
    node = info(a_node(images={"app:1": 1000 * MIB}))
    rare = scores.image_locality(make_query(a_pod()), node, {"app:1": 1}, 10)
    assert rare == 100 * (100 - 23) // (1000 - 23)


def test_soft_taints_count_unless_tolerated() -> None:
    node = info(a_node(taints=("a:PreferNoSchedule", "b:PreferNoSchedule", "c:NoSchedule")))
    tolerant = a_pod(tolerations=[{"key": "a", "operator": "Exists"}])
    hard_only = a_pod(tolerations=[{"operator": "Exists", "effect": "NoSchedule"}])
    assert scores.intolerable_soft_taints(make_query(a_pod()), node) == 2
    assert scores.intolerable_soft_taints(make_query(tolerant), node) == 1
    assert scores.intolerable_soft_taints(make_query(hard_only), node) == 2


def test_a_node_that_lacks_a_resource_is_even_in_it() -> None:
    node = info(a_node(cpu="4", memory="0"), a_pod("o", cpu="2"))
    assert scores.balanced(make_query(a_pod(cpu="1")), node) == 75
