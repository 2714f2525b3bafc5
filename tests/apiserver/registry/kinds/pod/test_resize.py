"""The `/resize` subresource of pods: what a resize may change, and what it is refused for."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.kinds.pod.resize import prepare_resize
from tests.apiserver.registry.rules import changed, complaint, update_complaint

C = "spec.containers[0].resources"
SMALL = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
LARGE = {"requests": {"cpu": "2", "memory": "2Gi"}, "limits": {"cpu": "4", "memory": "4Gi"}}
EQUAL = {"requests": {"cpu": "2", "memory": "2Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
WITH_GPU = {**SMALL, "limits": {**SMALL["limits"], "example.com/gpu": "1"}}
POLICY = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
SIDECAR = {"name": "s", "image": "i", "restartPolicy": "Always", "resources": SMALL}
INIT = {"name": "s", "image": "i", "resources": SMALL}


def resize_complaint(before: dict[str, Any], after: dict[str, Any]) -> str | None:
    old = {"status": {"qosClass": "Burstable"}, **before}
    return update_complaint("Pod", changed("Pod", {**old, **after}), changed("Pod", old), "resize")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({C: SMALL}, {C: LARGE}),
        ({C: LARGE}, {C: SMALL}),
        ({C: {"requests": {"cpu": "1"}}}, {C: SMALL}),
        ({C: WITH_GPU}, {C: {**WITH_GPU, "requests": {"cpu": "1500m", "memory": "1Gi"}}}),
        ({C: SMALL, "spec.initContainers": [SIDECAR]},
         {"spec.initContainers": [{**SIDECAR, "resources": LARGE}]}),
        ({C: SMALL, "spec.initContainers": [{**SIDECAR, "resizePolicy": POLICY}]},
         {"spec.initContainers": [{**SIDECAR, "resizePolicy": POLICY, "resources": LARGE}]}),
        ({C: SMALL, "spec.initContainers": [INIT]},
         {"spec.initContainers": [{**INIT, "resources": LARGE}]}),
        ({C: SMALL, "spec.resources": LARGE}, {"spec.resources": EQUAL | {
            "requests": {"cpu": "1", "memory": "1Gi"}}}),
        ({C: SMALL}, {"spec.resources": LARGE}),
        # Everything else is put back.
        ({C: SMALL}, {C: LARGE, "spec.containers[0].image": "other", "spec.nodeName": "n2",
                      "metadata.labels": {"a": "b"}, "status": {"qosClass": "Guaranteed"}}),
    ],
)  # fmt: skip
def test_cpu_and_memory_may_change(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert resize_complaint(before, after) is None


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ({C: SMALL}, {C: EQUAL},
         'spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing'),
        ({"status": {"qosClass": "BestEffort"}}, {C: SMALL},
         'spec: Invalid value: "BestEffort": Pod QOS Class may not change as a result of resizing'),
        ({C: SMALL}, {C: {"requests": SMALL["requests"], "limits": {"cpu": "2"}}},
         "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"),
        ({C: {"requests": SMALL["requests"]}}, {C: {"requests": {"cpu": "2"}}},
         "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed"),
        ({C: WITH_GPU}, {C: {**SMALL, "limits": {**SMALL["limits"], "example.com/gpu": "2"}}},
         "spec: Forbidden: only cpu and memory resources are mutable"),
        ({C: SMALL}, {C: {**SMALL, "requests": {"cpu": "3", "memory": "1Gi"}}},
         'spec.containers[0].resources.requests: Invalid value: "3": must be less than or equal to '
         "cpu limit of 2"),
        ({C: {**SMALL, "claims": [{"name": "r"}]}, "spec.resourceClaims": [
            {"name": "r", "resourceClaimName": "x"}]},
         {C: {**LARGE, "claims": [{"name": "r"}]}},
         "spec: Forbidden: only cpu and memory resources are mutable"),
        ({C: SMALL}, {"spec.containers[0].resizePolicy": POLICY},
         "spec: Forbidden: only cpu and memory resources are mutable"),
        ({C: SMALL}, {"spec.containers[0].name": "other"},
         "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on "
         "resize"),
        ({C: SMALL}, {"spec.initContainers": [INIT]},
         "spec.initContainers: Forbidden: initContainers may not be added or removed on resize"),
        ({C: SMALL, "spec.initContainers": [SIDECAR]},
         {"spec.initContainers": [{**SIDECAR, "resizePolicy": POLICY}]},
         "spec.initContainers[0]: Forbidden: only cpu and memory resources for init or sidecar "
         "containers are mutable"),
        ({C: SMALL, "spec.resources": LARGE}, {"spec.resources": None},
         "spec.resources: Forbidden: pod-level resources cannot be removed"),
        ({C: SMALL, "spec.resources": {"requests": LARGE["requests"], "limits": LARGE["limits"]}},
         {"spec.resources": {"requests": LARGE["requests"], "limits": {"cpu": "4"}}},
         "spec.resources.limits: Forbidden: pod-level resource limits cannot be removed"),
        ({C: SMALL, "status": {"qosClass": "Burstable", "containerStatuses": [
            {"name": "c", "state": {"running": {}}}]}}, {C: LARGE},
         "spec: Forbidden: Pod running on node without support for resize"),
        ({C: SMALL, "spec.os": {"name": "windows"}}, {C: LARGE},
         ": Forbidden: windows pods cannot be resized"),
        ({C: SMALL, "metadata.annotations": {"kubernetes.io/config.mirror": "x"}}, {C: LARGE},
         ": Forbidden: static pods cannot be resized"),
        ({C: SMALL, "status": {"qosClass": "Burstable", "nodeAllocatableResourceClaimStatuses": [
            {"resourceClaimName": "x", "containers": ["c"]}]}}, {C: LARGE},
         "spec: Forbidden: pods with node allocatable resource claims cannot be resized"),
    ],
)  # fmt: skip
def test_what_a_resize_is_refused_for(
    before: dict[str, Any], after: dict[str, Any], says: str
) -> None:
    assert resize_complaint(before, after) == says


def test_an_init_container_that_ends_is_not_restarted_for_a_resize() -> None:
    old = changed("Pod", {C: SMALL, "status": {"qosClass": "Burstable"}, "spec.initContainers": [
        {**INIT, "resizePolicy": POLICY}]})  # fmt: skip
    new = changed("Pod", {C: SMALL, "spec.initContainers": [
        {**INIT, "resizePolicy": POLICY, "resources": LARGE}]})  # fmt: skip
    said = update_complaint("Pod", new, old, "resize")
    assert said is not None
    assert (
        "spec.initContainers[0]: Forbidden: non-sidecar init containers with a resize policy of "
        "RestartContainer cannot be resized"
    ) in said


def test_a_resize_writes_nothing_but_resources() -> None:
    old = {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"},
           "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}}  # fmt: skip
    new = {"metadata": {"labels": {"a": "c"}, "annotations": {"x": "y"}}, "status": {},
           "spec": {"containers": [{"name": "c", "image": "j", "resources": SMALL}],
                    "resources": LARGE}}  # fmt: skip
    prepare_resize(new, old)
    assert new == {
        "metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"},
        "spec": {"nodeName": "n", "resources": LARGE,
                 "containers": [{"name": "c", "image": "i", "resources": SMALL}]},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({"spec.containers[0].resizePolicy": POLICY}, None),
        ({"spec.containers[0].resizePolicy": POLICY, "spec.restartPolicy": "Never"},
         'spec.containers[0].resizePolicy: Invalid value: "RestartContainer": must be '
         "'NotRequired' when pod `restartPolicy` is 'Never'"),
        ({"spec.containers[0].resizePolicy": [*POLICY, *POLICY]},
         'spec.containers[0].resizePolicy[1]: Duplicate value: "memory"'),
        ({"spec.initContainers": [{**SIDECAR, "resizePolicy": POLICY}]}, None),
        ({"spec.initContainers": [{**INIT, "resizePolicy": POLICY}]},
         'spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: "RestartContainer": '
         "must not be set to 'RestartContainer' for non-sidecar initContainers"),
    ],
)  # fmt: skip
def test_the_resize_policies_of_a_new_pod(sets: dict[str, Any], says: str | None) -> None:
    error = complaint("Pod", changed("Pod", sets))
    assert (None if error is None else error.partition(" is invalid: ")[2]) == says
