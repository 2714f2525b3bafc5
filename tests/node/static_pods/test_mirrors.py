from __future__ import annotations

from typing import Any

import pytest

from moorage.api.pods import Pod
from moorage.node.static_pods import mirror_of, plan_mirrors
from tests.node.objects import a_node, a_pod


def static(name: str, seal: str = "h1") -> Pod:
    annotations = {"kubernetes.io/config.hash": seal, "kubernetes.io/config.source": "file"}
    return a_pod(name=name, meta={"uid": seal, "annotations": annotations})


def mirror(name: str, seal: str = "h1", **meta: Any) -> Pod:
    annotations = {"kubernetes.io/config.mirror": seal}
    return a_pod(name=name, meta={"uid": f"m-{name}", "annotations": annotations, **meta})


DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("pods", "mirrors", "delete", "create", "pairs"),
    [
        ([], [], "", "", ""),
        ([static("a")], [], "", "a", ""),
        ([static("a")], [mirror("a")], "", "", "a"),
        ([static("a")], [mirror("a", "h0")], "a", "", ""),
        ([static("a")], [mirror("a", **DELETED)], "a", "", ""),
        ([], [mirror("a")], "a", "", ""),
        ([static("b"), static("c")], [mirror("a"), mirror("b")], "a", "c", "b"),
    ],
    ids=["none", "new", "the same", "changed", "deleted", "gone", "several"],
)
def test_mirrors_follow_the_static_pods(
    pods: list[Pod], mirrors: list[Pod], delete: str, create: str, pairs: str
) -> None:
    plan = plan_mirrors(pods, mirrors)
    assert " ".join(pod.metadata.name for pod in plan.delete) == delete
    assert " ".join(pod.metadata.name for pod in plan.create) == create
    assert " ".join(pod.metadata.name for pod, _ in plan.pairs) == pairs


def test_a_mirror_belongs_to_its_node() -> None:
    node = a_node(metadata={"name": "n1", "uid": "node-uid"})
    made = mirror_of(static("a"), node)["metadata"]
    assert "uid" not in made
    assert made["annotations"]["kubernetes.io/config.mirror"] == "h1"
    assert made["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid", "controller": True}
    ]
