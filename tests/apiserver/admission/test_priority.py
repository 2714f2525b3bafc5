"""Priorities: the named class, the default class, zero."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.errors import ForbiddenError
from moorage.api.pods import PriorityClass
from moorage.apiserver.admission.priority import PriorityAdmission
from moorage.apiserver.registry.kinds.pod import POD
from moorage.apiserver.registry.kinds.priorityclass import PRIORITY_CLASS
from tests.apiserver.admission.writes import admit, pod, write


def priority_class(name: str, value: int, **fields: Any) -> PriorityClass:
    return msgspec.convert({"metadata": {"name": name}, "value": value, **fields}, PriorityClass)


HIGH = priority_class("high", 1000)
MEEK = priority_class("meek", -5, preemptionPolicy="Never")
DEFAULT = priority_class("usual", 7, globalDefault=True)
LOWER_DEFAULT = priority_class("lower", 3, globalDefault=True)


def plugin(*classes: PriorityClass) -> PriorityAdmission:
    by_name = {runtime_class.metadata.name: runtime_class for runtime_class in classes}
    return PriorityAdmission(by_name.get, by_name.values)


@pytest.mark.parametrize(
    ("classes", "spec", "expected"),
    [
        ((), {}, (None, 0, "PreemptLowerPriority")),
        ((HIGH,), {"priorityClassName": "high"}, ("high", 1000, "PreemptLowerPriority")),
        ((MEEK,), {"priorityClassName": "meek"}, ("meek", -5, "Never")),
        ((HIGH, DEFAULT), {}, ("usual", 7, "PreemptLowerPriority")),
        ((DEFAULT, LOWER_DEFAULT), {}, ("lower", 3, "PreemptLowerPriority")),
        ((HIGH,), {"priorityClassName": "high", "priority": 1000},
         ("high", 1000, "PreemptLowerPriority")),
        ((), {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"},
         (None, 0, "PreemptLowerPriority")),
    ],
)  # fmt: skip
def test_a_pod_gets_its_classs_priority_or_the_default(
    classes: tuple[PriorityClass, ...], spec: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    after = admit(plugin(*classes), write(POD, pod(spec)))["spec"]
    shown = (after.get("priorityClassName"), after["priority"], after["preemptionPolicy"])
    assert shown == expected


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"priorityClassName": "nope"}, "no PriorityClass with name nope was found"),
        (
            {"priorityClassName": "high", "priority": 5},
            "the integer value of priority (5) must not be provided in pod spec; priority "
            "admission controller computed 1000 from the given PriorityClass name",
        ),
        (
            {"priorityClassName": "high", "preemptionPolicy": "Never"},
            "the string value of PreemptionPolicy (Never) must not be provided in pod spec; "
            "priority admission controller computed PreemptLowerPriority from the given "
            "PriorityClass name",
        ),
    ],
)
def test_a_pod_may_not_choose_its_number(spec: dict[str, Any], why: str) -> None:
    with pytest.raises(ForbiddenError) as refusal:
        admit(plugin(HIGH), write(POD, pod(spec)))
    assert refusal.value.message == f'pods "p" is forbidden: {why}'


def test_a_pod_keeps_the_priority_it_was_created_with() -> None:
    old = pod({"priority": 5, "priorityClassName": "gone"})
    new = pod({"priority": 5, "priorityClassName": "gone"})
    assert admit(plugin(DEFAULT), write(POD, new, old=old, operation="UPDATE")) == old


def test_there_is_one_default_class() -> None:
    def created(name: str) -> None:
        obj = {"metadata": {"name": name}, "value": 1, "globalDefault": True}
        admit(plugin(DEFAULT), write(PRIORITY_CLASS, obj))

    created("usual")
    with pytest.raises(ForbiddenError) as refusal:
        created("second")
    assert refusal.value.message == (
        'priorityclasses.scheduling.k8s.io "second" is forbidden: PriorityClass usual is already '
        "marked as default. Only one default can exist"
    )


def test_classes_that_are_not_the_default_pass() -> None:
    admit(plugin(DEFAULT), write(PRIORITY_CLASS, {"metadata": {"name": "x"}, "value": 1}))
