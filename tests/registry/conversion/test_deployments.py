"""Deployments in their first home, extensions/v1beta1."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.registry.codec import Codec, Media
from moorage.registry.kind import Obj
from moorage.registry.kinds.deployment import DEPLOYMENT
from moorage.registry.kinds.deployment.conversion import ROLLBACK_ANNOTATION
from moorage.registry.schema import load_schema

CODEC = Codec(load_schema())
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
def test_an_annotation_that_is_no_revision_stays_one(text: str) -> None:
    obj = stored(old_deployment())
    obj["metadata"]["annotations"] = {ROLLBACK_ANNOTATION: text}
    shown = CODEC.from_storage(EXTENSIONS, obj)
    assert shown["metadata"]["annotations"] == {ROLLBACK_ANNOTATION: text}
    assert "rollbackTo" not in shown["spec"]
