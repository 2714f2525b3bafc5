"""Decisions a second of the scheduler's core, no server: `.venv/bin/python bench/scheduler.py`.

Each line schedules pods of one template, one decision after the other, with each placement counted
before the next, on 1,000 and on 5,000 nodes. The last line is the cost of saying no.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from msgspec.structs import replace

from moorage.api.containers import Container, ResourceRequirements
from moorage.api.meta import ObjectMeta, OwnerReference
from moorage.api.nodes import Node, NodeRuntimeHandler, NodeStatus
from moorage.api.pods import (
    Affinity,
    Pod,
    PodAffinityTerm,
    PodAntiAffinity,
    PodSpec,
    TopologySpreadConstraint,
)
from moorage.api.runtime_group import RuntimeClass
from moorage.scheduler.cluster_state import ZONE, ClusterState
from moorage.scheduler.cycle import Cycle
from moorage.scheduler.query import QueryCache

NODE_COUNTS = (1000, 5000)
PODS = 3000
KATA = RuntimeClass(metadata=ObjectMeta(name="kata"), handler="kata")
APP = {"matchLabels": {"app": "web"}}

MakePod = Callable[[int], Pod]


def node(number: int) -> Node:
    return Node(
        metadata=ObjectMeta(
            name=f"n{number}",
            labels={"kubernetes.io/hostname": f"n{number}", ZONE: f"z{number % 3}"},
        ),
        status=NodeStatus(
            allocatable={"cpu": "32", "memory": "256Gi", "pods": "110"},
            runtime_handlers=(NodeRuntimeHandler(name=""), NodeRuntimeHandler(name="kata")),
        ),
    )


def plain(number: int, spec: PodSpec | None = None, *, owner: str = "", cpu: str = "100m") -> Pod:
    owners = (OwnerReference(uid=owner, controller=True),) if owner else ()
    requests = ResourceRequirements(requests={"cpu": cpu, "memory": "64Mi"})
    container = Container(name="app", image="app:1", resources=requests)
    return Pod(
        metadata=ObjectMeta(
            name=f"p{number}",
            namespace="default",
            uid=f"u{number}",
            labels={"app": "web"},
            owner_references=owners,
        ),
        spec=replace(spec or PodSpec(), containers=(container,), runtime_class_name="kata"),
    )


def anti_affine(number: int) -> Pod:
    term = PodAffinityTerm(label_selector=APP, topology_key="kubernetes.io/hostname")
    rule = PodAntiAffinity(required_during_scheduling_ignored_during_execution=(term,))
    return plain(number, PodSpec(affinity=Affinity(pod_anti_affinity=rule)))


def spread(number: int) -> Pod:
    constraint = TopologySpreadConstraint(
        max_skew=1, topology_key=ZONE, when_unsatisfiable="DoNotSchedule", label_selector=APP
    )
    return plain(number, PodSpec(topology_spread_constraints=(constraint,)))


TEMPLATES: dict[str, MakePod] = {
    "plain": plain,
    "replicas of one set": lambda number: plain(number, owner="set"),
    "hard zone spread": spread,
    "one a node (anti-affinity)": anti_affine,
    "too large for any node": lambda number: plain(number, cpu="64"),
}


def rate(make_pod: MakePod, node_count: int) -> float:
    """Decisions a second."""
    queries = QueryCache()
    state = ClusterState(queries)
    for number in range(node_count):
        state.set_node(node(number))
    cycle = Cycle(state, random.Random(1))
    pods = [make_pod(number) for number in range(min(PODS, node_count))]
    begin = time.perf_counter()
    for pod in pods:
        query = queries.of_waiting(pod, {"kata": KATA}.get)
        outcome = cycle.decide(pod, query)
        if isinstance(outcome, str):
            state.assume(pod, query, outcome)
    return len(pods) / (time.perf_counter() - begin)


def main() -> None:
    for name, make_pod in TEMPLATES.items():
        for node_count in NODE_COUNTS:
            print(f"{name:28s} {node_count:5d} nodes {rate(make_pod, node_count):9,.0f} pods/s")


if __name__ == "__main__":
    main()
