"""What fitting and checking a pod cost: `.venv/bin/python -m bench.fitting`.

50 classes of 50 handlers, 1,000 nodes with ten handlers each and labels of their own, a profile of
110 features for each handler of each node, one of twenty unlike the others. Each line is the best
of some rounds, in microseconds of processor time a pod; the goal is 50. Beside them, what a change
costs, and a look-up in a dictionary, 0.03 µs on an idle machine, by which to judge the others.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from bench.hotpaths import POD_BODY, ROUNDS, TIMES, report
from moorage.api.meta import Condition, ObjectMeta
from moorage.api.nodes import NodeRuntimeHandler
from moorage.api.runtime_group import (
    CHECK_ANNOTATION,
    NEEDS_ANNOTATION,
    SUPPORTED,
    UNSUPPORTED,
    WORKING,
    ClusterRuntimePolicy,
    ClusterRuntimePolicySpec,
    Overhead,
    ProfileFeature,
    RuntimeClass,
    RuntimePolicy,
    RuntimePolicySpec,
    RuntimeProfile,
    RuntimeProfileSpec,
    RuntimeProfileStatus,
    Scheduling,
    feature_label,
    profile_name,
)
from moorage.runtimeclass.class_choice import ChoiceRefusal, choose_class
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.features import FEATURES
from moorage.runtimeclass.isolation import Isolation
from moorage.runtimeclass.node_sets import NodeFacts, NodeFactsStatus
from moorage.runtimeclass.pod_review import review_pod
from moorage.runtimeclass.policies import effective_policy

CLASSES, NODES, HANDLERS_A_NODE = 50, 1000, 10
_RARE = "capability-sys-boot"
_LAST = f"handler-{CLASSES - 1}"
_LACKED_SHARE = 0.1
_LABELLED = frozenset(("terminal", "exec", "ipv6", "seccomp"))
_EVERYWHERE = frozenset(("memory-limit", "cpu-limit"))


def best_us(step: Callable[[], Any], times: int = TIMES) -> float:
    """Return the microseconds of processor time of one call, in the best of some rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(times):
            step()
        best = min(best, time.process_time() - began)
    return best / times * 1e6


def handler_name(number: int) -> str:
    return f"handler-{number}"


def node(number: int) -> NodeFacts:
    """A node with its labels, as many CPUs as its number allows, and ten of the handlers."""
    handlers = [(number + step) % CLASSES for step in range(HANDLERS_A_NODE)]
    return NodeFacts(
        metadata=ObjectMeta(
            name=f"n{number}",
            labels={
                "kubernetes.io/hostname": f"n{number}",
                "zone": f"z{number % 3}",
                **{
                    feature_label(handler_name(one), feature): "true"
                    for one in handlers
                    for feature in _LABELLED - lacking(handler_name(one))
                },
            },
        ),
        status=NodeFactsStatus(
            allocatable={
                "cpu": str(2 + number % 62),
                "memory": f"{4 + number % 250}Gi",
                "pods": "110",
            },
            runtime_handlers=tuple(NodeRuntimeHandler(name=handler_name(one)) for one in handlers),
        ),
    )


def lacking(handler: str) -> frozenset[str]:
    """What a handler lacks on all nodes: a tenth of all features, another one for each."""
    chance = random.Random(handler)
    lacked = {name for name in FEATURES if chance.random() < _LACKED_SHARE}
    return frozenset(lacked - _EVERYWHERE | (set() if handler == _LAST else {_RARE}))


def profile(node_name: str, handler: str, seed: int) -> RuntimeProfile:
    """A profile that differs from the others of its handler in one feature, for one of 20 nodes."""
    names = list(FEATURES)
    odd = names[seed % len(names)] if seed % 20 == 0 else ""
    lacked = lacking(handler) ^ ({odd} - _EVERYWHERE)
    features = tuple(
        ProfileFeature(name=name, state=UNSUPPORTED if name in lacked else SUPPORTED)
        for name in names
    )
    level = Isolation(1 + int(handler.removeprefix("handler-")) * 4 // CLASSES)
    return RuntimeProfile(
        metadata=ObjectMeta(name=profile_name(node_name, handler)),
        spec=RuntimeProfileSpec(node_name=node_name, handler=handler),
        status=RuntimeProfileStatus(
            isolation=level.label,
            features=features,
            conditions=(Condition(type=WORKING, status="True"),),
        ),
    )


def runtime_class(number: int) -> RuntimeClass:
    return RuntimeClass(
        metadata=ObjectMeta(name=f"class-{number}", annotations={CHECK_ANNOTATION: "Warn"}),
        handler=handler_name(number),
        overhead=Overhead(pod_fixed={"cpu": "10m", "memory": f"{16 + number}Mi"}),
        scheduling=Scheduling(node_selector={"zone": f"z{number % 3}"})
        if number % 4 == 3
        else None,
    )


def large_index() -> ClassIndex:
    index = ClassIndex()
    for number in range(NODES):
        facts = node(number)
        index.put_node(facts)
        for step, handler in enumerate(facts.status.runtime_handlers):
            index.put_profile(profile(facts.metadata.name, handler.name, number * 31 + step))
    for number in range(CLASSES):
        index.put_class(runtime_class(number))
    return index


def pod(needs: str = "", **spec: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Metadata and specification of the pod that the other benchmarks use too."""
    metadata = {"name": "web", "annotations": {NEEDS_ANNOTATION: needs} if needs else {}}
    body: dict[str, Any] = POD_BODY["spec"]  # type: ignore[assignment]
    whole = {**body, **spec}
    if needs:
        whole.pop("runtimeClassName")
    return metadata, whole


def main() -> None:
    index = large_index()
    cluster = [
        ClusterRuntimePolicy(
            metadata=ObjectMeta(name="floor"),
            spec=ClusterRuntimePolicySpec(minimum_isolation="user-space-kernel"),
        )
    ]
    own = [
        RuntimePolicy(
            metadata=ObjectMeta(name="team", namespace="default"),
            spec=RuntimePolicySpec(checks={"*": "Enforce"}),
        )
    ]
    policy = effective_policy({}, cluster, own)
    print(f"{CLASSES} classes, {NODES} nodes, {NODES * HANDLERS_A_NODE} profiles")

    def fitted(metadata: dict[str, Any], spec: dict[str, Any]) -> str:
        try:
            return str(choose_class(metadata, spec, {}, policy, index).class_name)
        except ChoiceRefusal as refusal:
            return f"refused: {str(refusal)[:60]}..."

    asking = {"hostNetwork": True, "containers": _asking_containers()}
    for title, case in (
        ("fit by isolation", pod("isolation=kernel")),
        (
            "fit by isolation and four features",
            pod("isolation=virtual-machine terminal exec ipv6 seccomp"),
        ),
        ("fit by a feature of the last class", pod(_RARE)),
        ("fit a pod that asks for much", pod("isolation=virtual-machine", **asking)),
        (
            "refuse a pod that no class fits",
            pod(f"{_RARE} isolation=confidential-virtual-machine", nodeName="n1"),
        ),
    ):
        report(f"{title}: {fitted(*case)}", best_us(lambda case=case: fitted(*case), 500))
    plain = pod(runtimeClassName="class-30")
    much = pod(runtimeClassName="class-30", **asking)
    report("check a pod", best_us(lambda: review_pod(*plain, policy, index)))
    report("check a pod that asks for much", best_us(lambda: review_pod(*much, policy, index)))
    weak = pod(runtimeClassName="class-0")
    report("refuse by the floor", best_us(lambda: review_pod(*weak, policy, index), 500))
    report("effective policy", best_us(lambda: effective_policy({}, cluster, own)))
    one, other = (profile("n1", handler_name(1), seed) for seed in (1, 2))

    def flap() -> None:
        index.put_profile(one)
        index.put_profile(other)
        index.find("class-1")

    report("a node flaps between features", best_us(flap, 100))
    known = dict.fromkeys(FEATURES)
    report("look up a feature in a dictionary", best_us(lambda: known.get(_RARE)))


def _asking_containers() -> list[dict[str, Any]]:
    container = dict(POD_BODY["spec"]["containers"][0])  # type: ignore[index]
    container |= {
        "tty": True,
        "securityContext": {
            "capabilities": {"add": ["NET_ADMIN", "SYS_PTRACE"]},
            "seccompProfile": {"type": "Localhost", "localhostProfile": "a.json"},
        },
    }
    return [container]


if __name__ == "__main__":
    main()
