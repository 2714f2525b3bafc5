"""Deployments: defaults, validation, extensions/v1beta1, columns."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.apiserver.registry.codec import Media
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.deployment import DEPLOYMENT, ROLLBACK_ANNOTATION
from tests.apiserver.registry.kinds.rows import WORKLOAD, columns, rows
from tests.apiserver.registry.rules import CODEC, KINDS, changed, decoded, update_complaint, updates


def test_a_template_gets_a_pods_defaults_but_for_what_admission_adds() -> None:
    spec = decoded(KINDS["Deployment"], changed("Deployment"))["spec"]
    assert "enableServiceLinks" not in spec["template"]["spec"]
    assert spec["template"]["spec"]["dnsPolicy"] == "ClusterFirst"
    del spec["template"]
    assert spec == {
        "replicas": 1,
        "selector": {"matchLabels": {"a": "b"}},
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
        },
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    }


test_update = updates("Deployment", cases=[
    ({}, {"spec.selector.matchLabels": {"x": "y"},
                        "spec.template.metadata.labels": {"x": "y"}},
     'spec.selector: Invalid value: {"matchLabels":{"x":"y"}}: field is immutable'),
    ({}, {"spec.replicas": 7}, ""),
])  # fmt: skip


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ({"replicas": 3, "readyReplicas": 2, "availableReplicas": 1}, None),
        ({"replicas": 1, "readyReplicas": 2},
         "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"),
        ({"replicas": 3, "readyReplicas": 1, "availableReplicas": 2},
         "status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas"),
        ({"readyReplicas": -1},
         "[status.readyReplicas: Invalid value: -1: must be greater than or equal to 0, "
         "status.availableReplicas: Invalid value: 0: cannot be greater than readyReplicas]"),
        ({"replicas": -1},
         "[status.replicas: Invalid value: -1: must be greater than or equal to 0, "
         "status.updatedReplicas: Invalid value: 0: cannot be greater than status.replicas, "
         "status.readyReplicas: Invalid value: 0: cannot be greater than status.replicas, "
         "status.availableReplicas: Invalid value: 0: cannot be greater than status.replicas]"),
    ],
)  # fmt: skip
def test_status(status: dict[str, Any], says: str | None) -> None:
    new = changed("Deployment", {"status": status})
    assert update_complaint("Deployment", new, changed("Deployment"), "status") == says


def test_a_collision_is_counted_up_only() -> None:
    new = changed("Deployment", {"status.collisionCount": 1})
    old = changed("Deployment", {"status.collisionCount": 2})
    assert update_complaint("Deployment", new, old, "status") == (
        "status.collisionCount: Invalid value: 1: cannot be decremented"
    )


APPS, EXTENSIONS = DEPLOYMENT.served
LABELS = {"app": "web"}


def old_deployment(**spec: Any) -> Obj:
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c"}]}}
    return {"metadata": {"name": "d"}, "spec": {"template": template, **spec}}


def stored(obj: Obj) -> Obj:
    return CODEC.decode(DEPLOYMENT, EXTENSIONS, msgspec.json.encode(obj), Media.JSON).obj


def test_the_first_versions_defaults_were_others() -> None:
    obj = stored(old_deployment())
    assert obj["metadata"]["labels"] == LABELS
    spec = {key: value for key, value in obj["spec"].items() if key != "template"}
    assert spec == {
        "replicas": 1,
        "selector": {"matchLabels": LABELS},
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1},
        },
        "revisionHistoryLimit": 2147483647,
        "progressDeadlineSeconds": 2147483647,
    }


def test_a_rollback_is_kept_as_an_annotation() -> None:
    obj = stored(old_deployment(rollbackTo={"revision": 3}))
    assert obj["metadata"]["annotations"] == {ROLLBACK_ANNOTATION: "3"}
    assert "rollbackTo" not in obj["spec"]
    shown = CODEC.from_storage(EXTENSIONS, obj)
    assert shown["spec"]["rollbackTo"] == {"revision": 3}
    assert "annotations" not in shown["metadata"]


ROLLBACKS: st.SearchStrategy[Any] = (
    st.none() | st.fixed_dictionaries({"revision": st.integers(1, 9)}) | st.just({})
)


@given(ROLLBACKS, st.dictionaries(st.sampled_from("ab"), st.text(max_size=2), max_size=2))
def test_there_and_back_nothing_is_lost(rollback: Any, annotations: dict[str, str]) -> None:
    sent = old_deployment() if rollback is None else old_deployment(rollbackTo=rollback)
    if annotations:
        sent["metadata"]["annotations"] = annotations
    first = stored(sent)
    before = copy.deepcopy(first)
    assert stored(CODEC.from_storage(EXTENSIONS, first)) == first
    assert first == before


@pytest.mark.parametrize("text", ["soon", "", "1.5"])
def test_invalid_rollback_annotation_stays_an_annotation(text: str) -> None:
    obj = stored(old_deployment())
    obj["metadata"]["annotations"] = {ROLLBACK_ANNOTATION: text}
    shown = CODEC.from_storage(EXTENSIONS, obj)
    assert shown["metadata"]["annotations"] == {ROLLBACK_ANNOTATION: text}
    assert "rollbackTo" not in shown["spec"]


test_row = rows("Deployment", cases=[
    ({"spec": WORKLOAD, "status": {
        "readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1}},
     ["x", "2/3", 3, 1, "90s", "a,b", "i:1,j", "app=w"]),
])  # fmt: skip


def test_columns() -> None:
    assert columns("Deployment") == (
        "Name Ready Up-to-date Available Age | Containers Images Selector"
    )
