"""Defaults of pods."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apiserver.registry.rules import KINDS, changed, decoded


def pod(sets: dict[str, Any] | None = None) -> dict[str, Any]:
    return decoded(KINDS["Pod"], changed("Pod", sets))


def test_a_pod_of_one_container() -> None:
    assert pod()["spec"] == {
        "containers": [
            {
                "name": "c",
                "image": "i",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "Always",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
    }


C = "spec.containers[0]"


@pytest.mark.parametrize(
    ("sets", "path", "expected"),
    [
        ({f"{C}.ports": [{"containerPort": 80}]}, "ports",
         [{"containerPort": 80, "protocol": "TCP"}]),
        ({f"{C}.livenessProbe": {"httpGet": {"port": 80}}}, "livenessProbe",
         {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1,
          "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}),
        ({f"{C}.livenessProbe": {"grpc": {"port": 80}, "periodSeconds": 5}}, "livenessProbe",
         {"grpc": {"port": 80, "service": ""}, "timeoutSeconds": 1,
          "periodSeconds": 5, "successThreshold": 1, "failureThreshold": 3}),
        ({f"{C}.lifecycle": {"preStop": {"httpGet": {"port": 80}}}}, "lifecycle",
         {"preStop": {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}}}),
        ({f"{C}.resources": {"limits": {"cpu": "1"}}}, "resources",
         {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}),
        ({f"{C}.resources": {"limits": {"cpu": "1", "memory": "2Mi"}, "requests": {"cpu": "5m"}}},
         "resources", {"limits": {"cpu": "1", "memory": "2Mi"},
                       "requests": {"cpu": "5m", "memory": "2Mi"}}),
        ({f"{C}.resources": {"requests": {"cpu": "0.0001", "memory": "1"}}}, "resources",
         {"requests": {"cpu": "1m", "memory": "1"}}),
        ({f"{C}.env": [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
         "env", [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name",
                                                          "apiVersion": "v1"}}}]),
    ],
)  # fmt: skip
def test_a_container(sets: dict[str, Any], path: str, expected: Any) -> None:
    assert pod(sets)["spec"]["containers"][0][path] == expected


@pytest.mark.parametrize(
    ("sets", "path", "expected"),
    [
        ({"spec.terminationGracePeriodSeconds": -5}, "terminationGracePeriodSeconds", 1),
        ({"spec.serviceAccount": "old"}, "serviceAccountName", "old"),
        ({"spec.serviceAccountName": "new"}, "serviceAccount", "new"),
        ({"spec.volumes": [{"name": "v"}]}, "volumes", [{"name": "v", "emptyDir": {}}]),
        ({"spec.volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, "volumes",
         [{"name": "v", "secret": {"secretName": "s", "defaultMode": 420}}]),
        ({"spec.volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}, "volumes",
         [{"name": "v", "hostPath": {"path": "/x", "type": ""}}]),
        ({"spec.volumes": [{"name": "v", "projected": {
            "sources": [{"serviceAccountToken": {"path": "t"}}]}}]}, "volumes",
         [{"name": "v", "projected": {"defaultMode": 420, "sources": [
             {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}}]),
        ({"spec.overhead": {"cpu": "100u"}}, "overhead", {"cpu": "1m"}),
        ({"spec.enableServiceLinks": False}, "enableServiceLinks", False),
    ],
)  # fmt: skip
def test_a_pod(sets: dict[str, Any], path: str, expected: Any) -> None:
    assert pod(sets)["spec"][path] == expected


def test_on_the_hosts_network_ports_are_the_hosts() -> None:
    spec = pod({"spec.hostNetwork": True, f"{C}.ports": [{"containerPort": 80}]})["spec"]
    assert spec["containers"][0]["ports"][0]["hostPort"] == 80


@pytest.mark.parametrize(
    ("container", "resources", "requests"),
    [
        ({}, {"limits": {"cpu": "1"}}, {"cpu": "1"}),
        ({"requests": {"cpu": "100m"}}, {"limits": {"cpu": "1"}}, {"cpu": "100m"}),
        (
            {"requests": {"cpu": "100m", "memory": "1Mi"}},
            {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}},
            {"cpu": "2", "memory": "1Mi"},
        ),
        ({"requests": {"example.com/x": "1"}, "limits": {"example.com/x": "1"}},
         {"limits": {"memory": "1Gi"}}, {"memory": "1Gi"}),
    ],
)  # fmt: skip
def test_a_pods_own_requests_are_its_containers_or_its_limits(
    container: dict[str, Any], resources: dict[str, Any], requests: dict[str, str]
) -> None:
    result = pod({f"{C}.resources": container, "spec.resources": resources})
    assert result["spec"]["resources"]["requests"] == requests


@given(st.sampled_from(["cpu", "memory"]), st.integers(1, 10**12))
def test_amounts_are_never_rounded_down(name: str, nano: int) -> None:
    from moorage.api.quantity import Quantity, parse

    asked = Quantity(nano)
    result = pod({f"{C}.resources": {"requests": {name: str(asked)}}})
    stored = parse(result["spec"]["containers"][0]["resources"]["requests"][name])
    assert asked <= stored
    assert stored.nano - nano < 10**6
