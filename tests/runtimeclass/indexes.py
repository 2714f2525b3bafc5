"""Short ways to build what a class index holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moorage.api.meta import Condition, ObjectMeta
from moorage.api.nodes import NodeRuntimeHandler
from moorage.api.runtime_group import (
    CHECK_ANNOTATION,
    ISOLATION_LABEL,
    MANAGED,
    MANAGED_LABEL,
    SUPPORTED,
    UNSUPPORTED,
    WORKING,
    Overhead,
    ProfileFeature,
    RuntimeClass,
    RuntimeProfile,
    RuntimeProfileSpec,
    RuntimeProfileStatus,
    Scheduling,
    profile_name,
)
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.node_sets import NodeFacts, NodeFactsStatus


def node(
    name: str,
    *handlers: str,
    labels: Mapping[str, str] | None = None,
    cpu: str = "4",
    memory: str = "8Gi",
) -> NodeFacts:
    return NodeFacts(
        metadata=ObjectMeta(name=name, labels=dict(labels or {})),
        status=NodeFactsStatus(
            allocatable={"cpu": cpu, "memory": memory} if cpu else {},
            runtime_handlers=tuple(NodeRuntimeHandler(name=handler) for handler in handlers),
        ),
    )


def profile(
    node_name: str,
    handler: str,
    *,
    has: Iterable[str] = (),
    lacks: Iterable[str] = (),
    isolation: str = "",
    works: str = "True",
) -> RuntimeProfile:
    features = [
        *(ProfileFeature(name=name, state=SUPPORTED) for name in has),
        *(ProfileFeature(name=name, state=UNSUPPORTED) for name in lacks),
    ]
    return RuntimeProfile(
        metadata=ObjectMeta(name=profile_name(node_name, handler)),
        spec=RuntimeProfileSpec(node_name=node_name, handler=handler),
        status=RuntimeProfileStatus(
            isolation=isolation,
            features=tuple(features),
            conditions=(Condition(type=WORKING, status=works),),
        ),
    )


def runtime_class(
    name: str,
    handler: str = "",
    *,
    isolation: str = "",
    is_managed: bool = False,
    check: str = "",
    overhead: Mapping[str, str] | None = None,
    selector: Mapping[str, str] | None = None,
) -> RuntimeClass:
    return RuntimeClass(
        metadata=ObjectMeta(
            name=name,
            labels=({ISOLATION_LABEL: isolation} if isolation else {})
            | ({MANAGED_LABEL: MANAGED} if is_managed else {}),
            annotations={CHECK_ANNOTATION: check} if check else {},
        ),
        handler=handler or name,
        overhead=None if overhead is None else Overhead(pod_fixed=dict(overhead)),
        scheduling=None if selector is None else Scheduling(node_selector=dict(selector)),
    )


def index_of(*objects: NodeFacts | RuntimeProfile | RuntimeClass) -> ClassIndex:
    index = ClassIndex()
    for obj in objects:
        if isinstance(obj, NodeFacts):
            index.put_node(obj)
        elif isinstance(obj, RuntimeProfile):
            index.put_profile(obj)
        else:
            index.put_class(obj)
    return index


def three_runtimes() -> ClassIndex:
    """A node with runc, gVisor and Kata, as probes find them: the class has the handler's name."""
    return index_of(
        node("n1", "runc", "runsc", "kata"),
        profile("n1", "runc", has=["host-network", "privileged", "terminal", "gpu"],
                lacks=["no-network"], isolation="shared-kernel"),
        profile("n1", "runsc", has=["terminal", "no-network"],
                lacks=["host-network", "privileged", "gpu"], isolation="user-space-kernel"),
        profile("n1", "kata", has=["terminal", "gpu"], lacks=["host-network"],
                isolation="virtual-machine"),
        runtime_class("runc"),
        runtime_class("gvisor", "runsc", overhead={"memory": "32Mi", "cpu": "10m"}),
        runtime_class("kata", overhead={"memory": "160Mi", "cpu": "250m"}),
    )  # fmt: skip
