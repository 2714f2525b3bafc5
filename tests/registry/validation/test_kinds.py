"""Kinds that the recorded answers do not reach: endpoints, cluster roles, reserved classes."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.registry.validation.subresources import validate_binding, validate_scale
from tests.registry.validation.rules import changed, complaint

ADDRESS = [{"ip": "10.0.0.1"}]


def subset(**fields: Any) -> dict[str, Any]:
    return {"subsets": [{"addresses": ADDRESS, **fields}]}


@pytest.mark.parametrize(
    ("kind", "sets", "says"),
    [
        ("Endpoints", subset(ports=[{"port": 80}]), None),
        ("Endpoints", {"subsets": [{"ports": [{"port": 80}]}]},
         "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"),
        ("Endpoints", {"subsets": [{"addresses": [{"ip": "127.0.0.1"}]}]},
         'subsets[0].addresses[0].ip: Invalid value: "127.0.0.1": may not be in the loopback range '
         "(127.0.0.0/8, ::1/128)"),
        ("Endpoints", {"subsets": [{"notReadyAddresses": [{"ip": "0.0.0.0"}]}]},
         'subsets[0].notReadyAddresses[0].ip: Invalid value: "0.0.0.0": may not be unspecified '
         "(0.0.0.0 or ::)"),
        ("Endpoints", {"subsets": [{"addresses": [{"ip": "169.254.1.1"}]}]},
         'subsets[0].addresses[0].ip: Invalid value: "169.254.1.1": may not be in the link-local '
         "range (169.254.0.0/16, fe80::/10)"),
        ("Endpoints", subset(ports=[{"port": 0}]),
         "subsets[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"),
        ("Endpoints", subset(ports=[{"port": 1}, {"port": 2, "name": "x"}]),
         "subsets[0].ports[0].name: Required value"),
        ("Endpoints", subset(ports=[{"port": 1, "protocol": "X"}]),
         'subsets[0].ports[0].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", '
         '"UDP"'),
        ("EndpointSlice", {"endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{}]}, None),
        ("EndpointSlice", {"endpoints": [{"addresses": []}]},
         "endpoints[0].addresses: Required value: must contain at least 1 address"),
        ("EndpointSlice", {"addressType": "X"},
         'addressType: Unsupported value: "X": supported values: "FQDN", "IPv4", "IPv6"'),
        ("EndpointSlice", {"ports": [{"name": "a"}, {"name": "a"}]},
         'ports: Duplicate value: "a"'),
        ("EndpointSlice", {"endpoints": [{"addresses": ["10.0.0.1"]}] * 1001},
         "endpoints: Too many: 1001: must have at most 1000 items"),
        ("EndpointSlice", {"addressType": "FQDN", "endpoints": [{"addresses": ["a.b"]}]}, None),
        ("ClusterRole", {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}, None),
        ("ClusterRole", {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"],
                                    "resources": ["pods"]}]},
         'rules[0].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular '
         "resources and non-resource URLs"),
        ("ClusterRole", {"aggregationRule": {}},
         "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector "
         "required if aggregationRule is non-nil"),
        ("ClusterRoleBinding", {"roleRef.kind": "Role"},
         'roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"'),
        ("ClusterRoleBinding", {"subjects": [{"kind": "ServiceAccount", "name": "s"}]},
         "subjects[0].namespace: Required value"),
        ("PriorityClass", {"metadata.name": "system-node-critical", "value": 2000001000}, None),
        ("PriorityClass", {"metadata.name": "system-node-critical", "value": 5},
         "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for "
         "system use only. error: value of system-node-critical PriorityClass must be 2000001000"),
        ("Lease", {"spec.holderIdentity": ""},
         'spec.holderIdentity: Invalid value: "": must not be empty'),
        ("Service", {"spec.clusterIP": "None", "spec.type": "NodePort"},
         "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort "
         "services"),
        ("Service", {"spec.sessionAffinity": "ClientIP",
                     "spec.sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}},
         "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be greater "
         "than 0 and less than 86400"),
        ("Service", {"spec.ports[0].nodePort": 30000},
         "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"),
        ("Service", {"spec.externalTrafficPolicy": "Local"},
         'spec.externalTrafficPolicy: Invalid value: "Local": may only be set for '
         "externally-accessible services"),
        ("ServiceAccount", {"metadata.name": "A"}, "metadata.name"),
        ("Pod", {"spec.containers[0].resources": {"requests": {"cpu": "1"}},
                 "spec.resources": {"requests": {"cpu": "500m"}}},
         'spec.resources.requests[cpu]: Invalid value: "500m": must be greater than or equal to '
         "aggregate container requests of 1"),
        ("Pod", {"spec.resources": {"limits": {"example.com/x": "1"}}},
         'spec.resources.limits[example.com/x]: Unsupported value: "example.com/x": supported '
         'values: "cpu", "hugepages-", "memory"'),
        ("Pod", {"spec.volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
                 "spec.containers[0].volumeDevices": [{"name": "v", "devicePath": "/dev/../x"}]},
         'spec.containers[0].volumeDevices[0].devicePath: Invalid value: "/dev/../x": can not '
         "contain backsteps ('..')"),
        ("Pod", {"spec.volumes": [{"name": "v", "emptyDir": {}}],
                 "spec.containers[0].volumeDevices": [{"name": "v", "devicePath": "/dev/x"}]},
         'spec.containers[0].volumeDevices[0].name: Invalid value: "v": can only use volume source '
         "type of PersistentVolumeClaim or Ephemeral for block mode"),
        ("Pod", {"spec.containers[0].lifecycle": {"preStop": {"sleep": {"seconds": 30}}}}, None),
        ("Pod", {"spec.containers[0].env": [{"name": "a", "valueFrom": {"resourceFieldRef": {
            "resource": "limits.memory", "divisor": "3Mi"}}}]},
         "spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "
         "\"limits.memory\": only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, "
         "1Pi, 1Ei are supported with the memory resource"),
        ("Pod", {"spec.dnsConfig": {"searches": ["a_b.c.", "."]}}, None),
    ],
)  # fmt: skip
def test_a_new_object(kind: str, sets: dict[str, Any], says: str | None) -> None:
    found = complaint(kind, changed(kind, sets))
    if says is None:
        assert found is None
    else:
        assert found is not None
        assert says in found.partition(" is invalid: ")[2]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ({"kind": "Node", "name": "n"}, []),
        ({"name": "n"}, []),
        ({"kind": "Pod", "name": "n"},
         ['target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"']),
        ({}, ["target.name: Required value"]),
    ],
)  # fmt: skip
def test_a_binding_is_to_a_node(target: dict[str, str], says: list[str]) -> None:
    assert [str(error) for error in validate_binding({"target": target})] == says


def test_a_scale_is_not_negative() -> None:
    assert validate_scale({"spec": {"replicas": 0}}) == []
    assert [str(error) for error in validate_scale({"spec": {"replicas": -1}})] == [
        "spec.replicas: Invalid value: -1: must be greater than or equal to 0"
    ]
