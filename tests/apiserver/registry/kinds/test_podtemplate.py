"""PodTemplates."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.kind import Obj
from tests.apiserver.registry.kinds.rows import WORKLOAD, columns, row
from tests.apiserver.registry.rules import KINDS, changed, complaint, decoded, update_complaint

KIND = "PodTemplate"


def test_defaults() -> None:
    template = decoded(KINDS[KIND], changed(KIND))["template"]
    assert template["spec"]["restartPolicy"] == "Always"
    assert template["spec"]["containers"][0]["imagePullPolicy"] == "Always"


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({"template.spec.containers": []}, "template.spec.containers: Required value"),
        ({"template.spec.dnsPolicy": "X"},
         'template.spec.dnsPolicy: Unsupported value: "X": supported values: '
         '"ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"'),
    ],
)  # fmt: skip
def test_creation_and_update(sets: dict[str, Any], says: str) -> None:
    obj = changed(KIND, sets)
    error = complaint(KIND, obj)
    assert error is not None
    assert error.partition(" is invalid: ")[2] == says
    assert update_complaint(KIND, obj, changed(KIND)) == says


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_pods_of_the_template_may_end(policy: str) -> None:
    sets = {"template.spec.restartPolicy": policy, "template.spec.activeDeadlineSeconds": 5}
    assert complaint(KIND, changed(KIND, sets)) is None


def test_a_changed_template_is_warned_about() -> None:
    secrets = {"template.spec.imagePullSecrets": [{"name": ""}]}
    obj = decoded(KINDS[KIND], changed(KIND, secrets))
    warn = KINDS[KIND].strategy.warn
    warning = 'template.spec.imagePullSecrets[0].name: invalid empty name ""'
    assert warn(obj, None) == [warning]
    assert warn(obj, decoded(KINDS[KIND], changed(KIND))) == [warning]
    assert warn(obj, obj) == []


def test_the_generation_counts_templates() -> None:
    spec_of = KINDS[KIND].strategy.spec_of
    assert spec_of is not None
    assert spec_of({"template": {"spec": {}}}) == {"spec": {}}


def test_row() -> None:
    pod_labels: Obj = {"metadata": {"labels": {"b": "2", "a": "1"}}}
    template: Any = WORKLOAD["template"]
    assert row(KIND, {"template": template | pod_labels}) == ["x", "a,b", "i:1,j", "a=1,b=2"]


def test_columns() -> None:
    assert columns(KIND) == "Name Containers Images Pod_Labels |"
