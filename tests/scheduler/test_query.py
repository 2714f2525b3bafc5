"""What a pod asks of a node, computed once for each template."""

from __future__ import annotations

import random
from typing import Any

import pytest

from moorage.scheduler.cycle import Cycle
from moorage.scheduler.query import QueryCache, host_ports
from tests.scheduler.objects import a_cluster, a_node, a_pod


def test_a_template_is_not_bound_to_the_node_of_its_first_pod() -> None:
    queries = QueryCache(filters_by_handler=False)
    placed, waiting = a_pod("first", node="n1"), a_pod("second")
    assert queries.of_placed(placed).spec.node_name == ""
    assert queries.of_waiting(waiting, lambda _: None) is queries.of_placed(placed)


def test_a_query_is_of_the_pod_it_was_made_for() -> None:
    queries = QueryCache(filters_by_handler=False)
    small, large = (
        queries.of_waiting(a_pod(name, cpu=cpu), lambda _: None)
        for name, cpu in (("small", "1"), ("large", "2"))
    )
    assert (small.cpu_milli, large.cpu_milli) == (1000, 2000)


def _names(operator: str, *values: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": values}]}


_SSD = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}


@pytest.mark.parametrize(
    ("terms", "nodes"),
    [
        ([_names("In", "n1", "n2")], {"n1", "n2"}),
        ([_names("In", "n1"), _names("In", "n2")], {"n1", "n2"}),
        ([_names("NotIn", "n1")], {"n2", "n3"}),
        ([_names("In", "n1"), _names("NotIn", "n1", "n2")], {"n1", "n3"}),
        ([_names("In", "n1"), _SSD], {"n1", "n3"}),
        ([{**_names("In", "n2", "n3"), **_SSD}], {"n3"}),
        ([], set()),
    ],
)
def test_nodes_that_required_affinity_names(terms: list[Any], nodes: set[str]) -> None:
    state = a_cluster(a_node("n1"), a_node("n2"), a_node("n3", labels={"disk": "ssd"}))
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = a_pod(affinity={"nodeAffinity": rule})
    query = QueryCache().of_waiting(pod, lambda _: None)
    result = {Cycle(state, random.Random(seed)).decide(pod, query) for seed in range(50)}
    assert {node for node in result if isinstance(node, str)} == nodes


def test_what_was_asked_longest_ago_is_forgotten_first() -> None:
    queries = QueryCache(filters_by_handler=False, most=2)
    pods = [a_pod(f"p{cpu}", cpu=str(cpu)) for cpu in (1, 2, 3)]
    first, second, third = (queries.of_waiting(pod, lambda _: None) for pod in pods)
    assert queries.of_waiting(pods[2], lambda _: None) is third
    assert queries.of_waiting(pods[1], lambda _: None) is second
    assert queries.of_waiting(pods[0], lambda _: None) is not first


def test_ports_of_the_node_are_those_of_containers_that_last() -> None:
    port = {"ports": [{"containerPort": 1, "hostPort": 81}]}
    pod = a_pod(
        host_port=80,
        initContainers=[
            {"name": "side", "image": "i", "restartPolicy": "Always", **port},
            {"name": "once", "image": "i", "ports": [{"containerPort": 1, "hostPort": 82}]},
        ],
    )
    assert [number for _, number, _ in host_ports(pod.spec)] == [80, 81]
