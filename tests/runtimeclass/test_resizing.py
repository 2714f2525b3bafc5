"""What a pod is charged for while it is being resized."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.pods import Pod
from moorage.api.quantity import to_texts
from moorage.runtimeclass import pod_limits, pod_requests
from moorage.runtimeclass.resizing import charged_spec


def cpu(amount: str, limit: str = "") -> dict[str, Any]:
    return {"requests": {"cpu": amount}} | ({"limits": {"cpu": limit}} if limit else {})


def status(name: str, has: str, promised: str, limit: str = "") -> dict[str, Any]:
    return {"name": name, "resources": cpu(has, limit), "allocatedResources": {"cpu": promised}}


def pod(asked: str, *statuses: dict[str, Any], limit: str = "", **more: Any) -> Pod:
    spec = {"containers": [{"name": "c", "resources": cpu(asked, limit)}], **more.pop("spec", {})}
    body = {"spec": spec, "status": {"containerStatuses": list(statuses), **more.pop("status", {})}}
    return msgspec.convert({**body, **more}, Pod)


INFEASIBLE = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
DEFERRED = [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pod("1"), "1"),
        (pod("1", status("c", "1", "1")), "1"),
        (pod("3", status("c", "1", "1")), "3"),
        (pod("1", status("c", "3", "3")), "3"),
        (pod("1", status("c", "1", "2")), "2"),
        (pod("3", status("c", "1", "1"), status={"conditions": DEFERRED}), "3"),
        (pod("3", status("c", "1", "2"), status={"conditions": INFEASIBLE}), "2"),
        (pod("3", status("c", "1", "1"), spec={"overhead": {"cpu": "250m"}}), "3250m"),
        # Init containers that end are charged as specified, sidecars like main containers.
        (pod("1", spec={"initContainers": [{"name": "i", "resources": cpu("2")}]},
             status={"initContainerStatuses": [status("i", "4", "4")]}), "2"),
        (pod("1", spec={"initContainers": [{"name": "s", "restartPolicy": "Always",
                                            "resources": cpu("1")}]},
             status={"initContainerStatuses": [status("s", "2", "2")]}), "3"),
    ],
)  # fmt: skip
def test_requests_are_the_largest_of_three(given: Pod, expected: str) -> None:
    assert to_texts(pod_requests(charged_spec(given)))["cpu"] == expected


def test_limits_are_the_larger_of_two() -> None:
    given = pod("1", status("c", "1", "1", limit="4"), limit="2")
    assert to_texts(pod_limits(charged_spec(given)))["cpu"] == "4"


def whole(asked: str, has: str, promised: str, **more: Any) -> Pod:
    spec = {"containers": [], "resources": cpu(asked), "overhead": {"cpu": "1"}}
    reported = {"resources": cpu(has), "allocatedResources": {"cpu": promised}}
    return msgspec.convert({"spec": spec, "status": {**reported, **more.pop("status", {})}, **more},
                           Pod)  # fmt: skip


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # A kubelet's report includes the overhead: it counts only while the pod is resized.
        (whole("2", "3", "3"), "3"),
        (whole("2", "4", "4", metadata={"generation": 2}, status={"observedGeneration": 1}), "5"),
        (whole("5", "4", "4", status={"conditions": DEFERRED}), "6"),
        (whole("5", "4", "4", status={"conditions": INFEASIBLE}), "5"),
    ],
)
def test_pod_level_requests_during_a_resize(given: Pod, expected: str) -> None:
    assert to_texts(pod_requests(charged_spec(given)))["cpu"] == expected


def test_a_pod_that_is_not_resized_keeps_its_specification() -> None:
    given = pod("1", status("c", "1", "1"))
    assert charged_spec(given) is given.spec
