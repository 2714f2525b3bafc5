"""Versions of a class: names, origins, what a new one keeps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.meta import ObjectMeta
from moorage.api.runtime_group import (
    MANAGED_LABEL,
    PREVIOUS_OVERHEAD_ANNOTATION,
    VERSION_OF_ANNOTATION,
)
from moorage.runtimeclass.class_versions import (
    VersionError,
    has_overhead,
    in_place_patch,
    newest_version,
    next_version,
    origin_of,
    version_of,
)

NAMES = st.from_regex(r"[a-z0-9]{1,8}(-v[0-9]{1,3})?", fullmatch=True)


def meta(name: str, of: str = "") -> ObjectMeta:
    return ObjectMeta(name=name, annotations={VERSION_OF_ANNOTATION: of} if of else {})


def runtime_class(name: str, of: str = "", **more: Any) -> dict[str, Any]:
    annotations = {VERSION_OF_ANNOTATION: of} if of else {}
    return {"metadata": {"name": name, "annotations": annotations}, "handler": "h", **more}


@pytest.mark.parametrize(
    ("name", "of", "origin", "number"),
    [
        ("gvisor", "", "gvisor", 1),
        ("gvisor-v2", "", "gvisor-v2", 1),
        ("gvisor-v2", "gvisor", "gvisor", 2),
        ("gvisor-v12", "gvisor", "gvisor", 12),
        # An annotation that does not fit the name is no version of anything.
        ("other", "gvisor", "other", 1),
        ("gvisor-v02", "gvisor", "gvisor-v02", 1),
        ("gvisor-v1", "gvisor", "gvisor-v1", 1),
        ("gvisor-v", "gvisor", "gvisor-v", 1),
        ("gvisor-v٣", "gvisor", "gvisor-v٣", 1),
        ("gvisor", "gvisor", "gvisor", 1),
    ],
)
def test_origin_and_number(name: str, of: str, origin: str, number: int) -> None:
    assert (origin_of(meta(name, of)), version_of(meta(name, of))) == (origin, number)


def test_the_newest_version_is_the_one_with_the_greatest_number() -> None:
    classes = [meta("g"), meta("g-v9", "g"), meta("g-v10", "g"), meta("g-v11"), meta("x-v20", "x")]
    assert newest_version("g", classes) == "g-v10"
    assert newest_version("absent", classes) == "absent"


def test_a_version_keeps_all_but_overhead_and_management() -> None:
    base = runtime_class(
        "g", overhead={"podFixed": {"memory": "1Mi"}}, scheduling={"nodeSelector": {"a": "b"}}
    )
    base["metadata"]["labels"] = {MANAGED_LABEL: "true", "team": "x"}
    version = next_version(base, ["g"], {"memory": "2Mi"}, {"e": "f"})
    assert version == {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {
            "name": "g-v2",
            "annotations": {VERSION_OF_ANNOTATION: "g", "e": "f"},
            "labels": {"team": "x"},
        },
        "handler": "h",
        "overhead": {"podFixed": {"memory": "2Mi"}},
        "scheduling": {"nodeSelector": {"a": "b"}},
    }


def test_names_that_others_took_are_passed_over() -> None:
    taken = ["g", "g-v2", "g-v3"]
    assert next_version(runtime_class("g"), taken, {}, {})["metadata"]["name"] == "g-v4"


def test_a_name_that_would_be_too_long_is_an_error() -> None:
    with pytest.raises(VersionError, match="too long"):
        next_version(runtime_class("g" * 251), [], {}, {})


@given(NAMES, st.integers(1, 5))
def test_versions_follow_each_other(name: str, count: int) -> None:
    newest, taken = runtime_class(name), [name]
    for number in range(2, count + 2):
        newest = next_version(newest, taken, {}, {})
        taken.append(newest["metadata"]["name"])
        made = meta(
            newest["metadata"]["name"], newest["metadata"]["annotations"][VERSION_OF_ANNOTATION]
        )
        assert (origin_of(made), version_of(made)) == (name, number)


@pytest.mark.parametrize(
    ("declared", "wanted", "same"),
    [
        (None, {}, True),
        ({"memory": "1Gi"}, {"memory": "1024Mi"}, True),
        ({"memory": "1Gi"}, {"memory": "1Gi", "cpu": "1m"}, False),
        ({"cpu": "0.1"}, {"cpu": "100m"}, True),
    ],
)
def test_the_same_amounts_in_another_spelling_are_the_same(
    declared: dict[str, str] | None, wanted: dict[str, str], same: bool
) -> None:
    more: dict[str, Any] = {} if declared is None else {"overhead": {"podFixed": declared}}
    assert has_overhead(runtime_class("g", **more), wanted) is same


def test_a_change_in_place_removes_what_is_not_proposed_and_keeps_the_previous() -> None:
    current = runtime_class("g", overhead={"podFixed": {"cpu": "1m", "memory": "1Mi"}})
    current["metadata"]["resourceVersion"] = "7"
    patch = in_place_patch(current, {"memory": "2Mi"}, {"e": "f"}, "previous")
    assert patch == {
        "metadata": {
            "resourceVersion": "7",
            "annotations": {"e": "f", PREVIOUS_OVERHEAD_ANNOTATION: "previous"},
        },
        "overhead": {"podFixed": {"cpu": None, "memory": "2Mi"}},
    }
