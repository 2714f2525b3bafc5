"""What has to change about the objects of flow control."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from moorage.apiserver.flow_control.defaults import AUTO_UPDATE, default_objects
from moorage.apiserver.flow_control.keeper import is_unwanted, revised, with_dangling
from moorage.apiserver.registry.kind import Kind, Obj

DEFAULTS = {
    (kind.plural, obj["metadata"]["name"]): (kind, obj, is_mandatory)
    for kind, obj, is_mandatory in default_objects()
}
SCHEMAS, LEVELS = "flowschemas", "prioritylevelconfigurations"
NOW = "2026-11-24T12:00:00Z"


def _default(plural: str, name: str) -> tuple[Kind, Obj, bool]:
    kind, obj, is_mandatory = DEFAULTS[plural, name]
    return kind, copy.deepcopy(obj), is_mandatory


@pytest.mark.parametrize(("plural", "name"), DEFAULTS)
def test_a_default_object_is_as_it_should_be(plural: str, name: str) -> None:
    kind, obj, is_mandatory = _default(plural, name)
    obj["metadata"]["generation"] = 1
    assert revised(kind, obj, DEFAULTS[plural, name][1], is_mandatory=is_mandatory) is None
    validated = copy.deepcopy(obj)
    kind.strategy.default(validated)
    assert validated == obj, "defaults change nothing"
    assert kind.strategy.validate(validated) == []


@pytest.mark.parametrize(
    ("annotation", "generation", "is_restored"),
    [
        ("true", 7, True),
        ("1", 7, True),
        ("false", 1, False),
        ("F", 1, False),
        (None, 1, True),
        (None, 2, False),
        ("maybe", 1, True),
        ("maybe", 2, False),
    ],
)
def test_a_suggested_object_is_restored_if_its_annotation_or_generation_says_so(
    annotation: str | None, generation: int, is_restored: bool
) -> None:
    kind, present, _ = _default(SCHEMAS, "service-accounts")
    annotations = {} if annotation is None else {AUTO_UPDATE: annotation}
    present["metadata"] |= {"generation": generation, "annotations": annotations}
    present["spec"]["matchingPrecedence"] = 77
    changed = (
        revised(kind, present, DEFAULTS[SCHEMAS, "service-accounts"][1], is_mandatory=False)
        or present
    )
    assert changed["spec"]["matchingPrecedence"] == (9000 if is_restored else 77)
    noted = changed["metadata"]["annotations"].get(AUTO_UPDATE)
    known = {"1": "1", "F": "F"}
    assert noted == known.get(annotation or "", "true" if is_restored else "false")


@pytest.mark.parametrize("annotation", ["true", "false", None])
@pytest.mark.parametrize(
    ("plural", "name"), [(SCHEMAS, "exempt"), (SCHEMAS, "catch-all"), (LEVELS, "catch-all")]
)
def test_a_mandatory_object_is_restored_whatever_it_says(
    plural: str, name: str, annotation: str | None
) -> None:
    kind, present, _ = _default(plural, name)
    present["metadata"]["annotations"] = {} if annotation is None else {AUTO_UPDATE: annotation}
    present["spec"] = {}
    default = DEFAULTS[plural, name][1]
    changed = revised(kind, present, default, is_mandatory=True)
    assert changed is not None
    assert changed["spec"] == default["spec"]
    assert changed["spec"] is not default["spec"]
    assert changed["metadata"]["annotations"] == {AUTO_UPDATE: "true"}


def test_the_shares_of_the_exempt_level_are_the_users() -> None:
    kind, present, _ = _default(LEVELS, "exempt")
    default = DEFAULTS[LEVELS, "exempt"][1]
    present["spec"]["exempt"] = {"nominalConcurrencyShares": 9, "lendablePercent": 1}
    assert revised(kind, present, default, is_mandatory=True) is None
    present["spec"] = {"type": "Exempt"}
    changed = revised(kind, present, default, is_mandatory=True)
    assert changed is not None
    assert changed["spec"] == default["spec"]


@pytest.mark.parametrize("spec", [{"rules": "x"}, {"matchingPrecedence": None}])
def test_a_specification_of_another_shape_is_replaced(spec: Any) -> None:
    kind, present, _ = _default(SCHEMAS, "probes")
    changed = revised(kind, {**present, "spec": spec}, present, is_mandatory=False)
    assert changed == present


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [({AUTO_UPDATE: "true"}, True), ({AUTO_UPDATE: "false"}, False), ({AUTO_UPDATE: "?"}, False),
     ({}, False), (None, False)],
)  # fmt: skip
def test_which_objects_are_removed(annotations: dict[str, str] | None, expected: bool) -> None:
    metadata = {"name": "x"} if annotations is None else {"name": "x", "annotations": annotations}
    assert is_unwanted({"metadata": metadata}) is expected


def test_the_condition_says_whether_the_level_is_missing() -> None:
    _, present, _ = _default(SCHEMAS, "probes")
    found = with_dangling(present, is_dangling=False, now=NOW)
    assert found is not None
    assert found["status"]["conditions"] == [
        {
            "type": "Dangling", "status": "False", "reason": "Found", "lastTransitionTime": NOW,
            "message": 'This FlowSchema references the PriorityLevelConfiguration object named '
            '"exempt" and it exists',
        }
    ]  # fmt: skip
    assert with_dangling(found, is_dangling=False, now="later") is None
    missing = with_dangling(found, is_dangling=True, now="later")
    assert missing is not None
    assert missing["status"]["conditions"] == [
        {
            "type": "Dangling", "status": "True", "reason": "NotFound",
            "lastTransitionTime": "later",
            "message": 'This FlowSchema references the PriorityLevelConfiguration object named '
            '"exempt" but there is no such object',
        }
    ]  # fmt: skip


def test_conditions_of_others_stay() -> None:
    other = {"type": "Other", "status": "True"}
    present: Obj = {"metadata": {"name": "x"}, "spec": {}, "status": {"conditions": [other]}}
    changed = with_dangling(present, is_dangling=True, now=NOW)
    assert changed is not None
    assert [one["type"] for one in changed["status"]["conditions"]] == ["Other", "Dangling"]


@pytest.mark.parametrize("spec", [{}, {"priorityLevelConfiguration": 7}, []])
def test_a_schema_without_the_shape_of_its_kind_is_dangling_without_a_name(spec: Any) -> None:
    changed = with_dangling({"metadata": {"name": "x"}, "spec": spec}, is_dangling=True, now=NOW)
    assert changed is not None
    assert 'named "" but' in changed["status"]["conditions"][0]["message"]
