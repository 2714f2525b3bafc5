"""What the API promises where the user said nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.registry.defaults.pod_template import default_pull_policy
from moorage.registry.kinds import STORED_KINDS
from tests.registry.validation.rules import BASES, CODEC, KINDS, changed, decoded


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


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.2", "IfNotPresent"),
        ("host:5000/nginx", "Always"),
        ("host:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:00", "IfNotPresent"),
        ("nginx:latest@sha256:00", "IfNotPresent"),
        ("", "Always"),
    ],
)
def test_what_may_change_under_its_name_is_always_pulled(image: str, policy: str) -> None:
    assert default_pull_policy(image) == policy


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
    found = pod({f"{C}.resources": container, "spec.resources": resources})
    assert found["spec"]["resources"]["requests"] == requests


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


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ({}, {"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
              "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]}),
        ({"spec.type": "NodePort", "spec.ports": [{"port": 80, "targetPort": "http"}]},
         {"type": "NodePort", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
          "externalTrafficPolicy": "Cluster",
          "ports": [{"port": 80, "protocol": "TCP", "targetPort": "http"}]}),
        ({"spec.type": "ExternalName", "spec.externalName": "x", "spec.ports": []},
         {"type": "ExternalName", "externalName": "x", "sessionAffinity": "None"}),
        ({"spec.sessionAffinity": "ClientIP"},
         {"type": "ClusterIP", "sessionAffinity": "ClientIP", "internalTrafficPolicy": "Cluster",
          "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
          "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]}),
    ],
)  # fmt: skip
def test_a_service(sets: dict[str, Any], expected: dict[str, Any]) -> None:
    assert decoded(KINDS["Service"], changed("Service", sets))["spec"] == expected


def test_a_secrets_clear_text_wins_over_what_is_encoded() -> None:
    secret = decoded(KINDS["Secret"], changed("Secret", {"stringData": {"a": "new", "b": "x"}}))
    assert secret["data"] == {"a": "bmV3", "b": "eA=="}
    assert secret["type"] == "Opaque"
    assert "stringData" not in secret


def test_a_bindings_subjects_know_their_group() -> None:
    subjects = [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]
    obj = changed("RoleBinding", {"subjects": subjects, "metadata.namespace": "n"}, "roleRef")
    obj["roleRef"] = {"kind": "Role", "name": "x"}
    binding = decoded(KINDS["RoleBinding"], obj)
    group = "rbac.authorization.k8s.io"
    assert binding["roleRef"]["apiGroup"] == group
    assert binding["subjects"] == [
        {"kind": "User", "name": "u", "apiGroup": group},
        {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
    ]


def test_what_a_node_can_give_is_what_it_has() -> None:
    status = {"capacity": {"cpu": "4", "memory": "8Gi"}, "allocatable": {"cpu": "3"}}
    node = decoded(KINDS["Node"], changed("Node", {"status": status}))
    assert node["status"]["allocatable"] == {"cpu": "3", "memory": "8Gi"}


def test_a_class_gets_no_default() -> None:
    assert decoded(KINDS["RuntimeClass"], changed("RuntimeClass")) == BASES["RuntimeClass"]


@pytest.mark.parametrize(
    "kind", [kind for kind in STORED_KINDS if kind.name in BASES], ids=lambda kind: kind.name
)
def test_defaults_once_filled_in_stay(kind: Any) -> None:
    once = decoded(kind, changed(kind.name))
    again = copy.deepcopy(once)
    kind.strategy.default(again)
    assert CODEC.normalize(kind.storage.type, again) == once


@given(st.sampled_from(["cpu", "memory"]), st.integers(1, 10**12))
def test_amounts_are_never_rounded_down(name: str, nano: int) -> None:
    from moorage.api.quantity import Quantity, parse

    asked = Quantity(nano)
    found = pod({f"{C}.resources": {"requests": {name: str(asked)}}})
    stored = parse(found["spec"]["containers"][0]["resources"]["requests"][name])
    assert asked <= stored
    assert stored.nano - nano < 10**6
