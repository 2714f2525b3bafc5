from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from moorage.api.clock import format_time
from moorage.api.errors import ConflictError, InvalidError
from moorage.apiserver.registry.deletion import (
    Action,
    DeleteOptions,
    check_preconditions,
    decide,
    is_over,
)
from moorage.apiserver.registry.kind import Kind, Obj
from tests.apiserver.registry.sample_kinds import GRACEFUL, HELD, PLAIN

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def obj(node: str = "", **meta: Any) -> Obj:
    return {"metadata": {"name": "a", "uid": "u1", **meta}, "spec": {"nodeName": node}}


def deleted(seconds: int, grace: int | None = None, **meta: Any) -> dict[str, Any]:
    marks: dict[str, Any] = {"deletionTimestamp": format_time(NOW + timedelta(seconds=seconds))}
    if grace is not None:
        marks["deletionGracePeriodSeconds"] = grace
    return {**marks, **meta}


@pytest.mark.parametrize(
    ("kind", "before", "options", "action"),
    [
        (PLAIN, obj(), DeleteOptions(), Action.REMOVE),
        (PLAIN, obj(finalizers=["a.b/c"]), DeleteOptions(), Action.UPDATE),
        (PLAIN, obj(), DeleteOptions(propagation_policy="Foreground"), Action.UPDATE),
        (PLAIN, obj(), DeleteOptions(propagation_policy="Orphan"), Action.UPDATE),
        (PLAIN, obj(), DeleteOptions(propagation_policy="Background"), Action.REMOVE),
        (PLAIN, obj(finalizers=["a.b/c"], **deleted(0)), DeleteOptions(), Action.KEEP),
        (PLAIN, obj(**deleted(0)), DeleteOptions(), Action.REMOVE),
        (GRACEFUL, obj(), DeleteOptions(), Action.UPDATE_THEN_REMOVE),
        (GRACEFUL, obj("n1"), DeleteOptions(), Action.UPDATE),
        (GRACEFUL, obj("n1"), DeleteOptions(grace_period_seconds=0), Action.UPDATE_THEN_REMOVE),
        (GRACEFUL, obj("n1", **deleted(30, 30)), DeleteOptions(), Action.KEEP),
        (
            GRACEFUL,
            obj("n1", **deleted(30, 30)),
            DeleteOptions(grace_period_seconds=60),
            Action.KEEP,
        ),
        (
            GRACEFUL,
            obj("n1", **deleted(30, 30)),
            DeleteOptions(grace_period_seconds=5),
            Action.UPDATE,
        ),
        (
            GRACEFUL,
            obj("n1", **deleted(30, 30)),
            DeleteOptions(grace_period_seconds=0),
            Action.REMOVE,
        ),
        (HELD, {**obj(), "spec": {"finalizers": ["kubernetes"]}}, DeleteOptions(), Action.UPDATE),
    ],
)
def test_what_a_delete_does(
    kind: Kind, before: Obj, options: DeleteOptions, action: Action
) -> None:
    assert decide(kind, before, options, NOW).action is action


def test_a_running_pod_gets_its_grace_and_a_new_generation() -> None:
    marked = decide(GRACEFUL, obj("n1", generation=1), DeleteOptions(), NOW).obj["metadata"]
    assert marked["deletionTimestamp"] == "2026-01-01T00:00:30Z"
    assert marked["deletionGracePeriodSeconds"] == 30
    assert marked["generation"] == 2


def test_a_shorter_grace_brings_the_end_nearer() -> None:
    before = obj("n1", **deleted(30, 30))
    after = decide(GRACEFUL, before, DeleteOptions(grace_period_seconds=5), NOW).obj["metadata"]
    assert after["deletionTimestamp"] == "2026-01-01T00:00:05Z"
    assert after["deletionGracePeriodSeconds"] == 5


def test_a_namespace_goes_terminating_and_has_no_grace() -> None:
    before = {**obj(), "spec": {"finalizers": ["kubernetes"]}}
    after = decide(HELD, before, DeleteOptions(), NOW).obj
    assert after["status"]["phase"] == "Terminating"
    assert "deletionGracePeriodSeconds" not in after["metadata"]


def test_each_policys_finalizer_replaces_the_others() -> None:
    before = obj(finalizers=["orphan", "a.b/c"], **deleted(0))
    after = decide(PLAIN, before, DeleteOptions(propagation_policy="Foreground"), NOW).obj
    assert after["metadata"]["finalizers"] == ["a.b/c", "foregroundDeletion"]


@pytest.mark.parametrize(
    ("before", "over"),
    [
        (obj(), False),
        (obj(**deleted(0)), True),
        (obj(**deleted(0, 0)), True),
        (obj(**deleted(30, 30)), False),
        (obj(finalizers=["a.b/c"], **deleted(0)), False),
    ],
)
def test_an_object_is_over_when_nothing_holds_it(before: Obj, over: bool) -> None:
    assert is_over(PLAIN, before) is over


def test_preconditions_name_the_object_that_was_meant() -> None:
    check_preconditions(PLAIN, obj(resourceVersion="5"), DeleteOptions(uid="u1"))
    with pytest.raises(ConflictError, match=r"the UID in the precondition \(u2\)"):
        check_preconditions(PLAIN, obj(), DeleteOptions(uid="u2"))
    with pytest.raises(ConflictError, match=r"the ResourceVersion in the precondition \(1\)"):
        check_preconditions(PLAIN, obj(resourceVersion="5"), DeleteOptions(resource_version="1"))


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidError, match="cannot be both set"):
        DeleteOptions.of({"propagationPolicy": "Orphan", "orphanDependents": True})
    with pytest.raises(InvalidError, match='supported values: "Foreground", "Background"'):
        DeleteOptions.of({"propagationPolicy": "Sideways"})
    assert DeleteOptions.of({"orphanDependents": True}).propagation_policy == "Orphan"
