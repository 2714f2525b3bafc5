"""Services."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.kinds.service import prepare_service_create, warn_service
from tests.apiserver.registry.kinds.rows import columns, rows
from tests.apiserver.registry.rules import (
    KINDS,
    changed,
    creations,
    decoded,
    updates,
)


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
def test_defaults(sets: dict[str, Any], expected: dict[str, Any]) -> None:
    assert decoded(KINDS["Service"], changed("Service", sets))["spec"] == expected


def test_a_new_service_has_no_ingress() -> None:
    service = {"status": {"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}}}
    prepare_service_create(service)
    assert service == {"status": {"loadBalancer": {}}}


test_creation = creations("Service", cases=[
    ({"spec.clusterIP": "None", "spec.type": "NodePort"},
     "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort "
     "services"),
    ({"spec.sessionAffinity": "ClientIP",
                 "spec.sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}},
     "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be greater "
     "than 0 and less than 86400"),
    ({"spec.ports[0].nodePort": 30000},
     "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"),
    ({"spec.externalTrafficPolicy": "Local"},
     'spec.externalTrafficPolicy: Invalid value: "Local": may only be set for '
     "externally-accessible services"),
])  # fmt: skip


test_update = updates("Service", cases=[
    ({"spec.clusterIP": "10.0.0.1", "spec.clusterIPs": ["10.0.0.1"]},
     {"spec.clusterIP": "10.0.0.2", "spec.clusterIPs": ["10.0.0.2"]},
     'spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set'),
    ({"spec.clusterIP": "10.0.0.1", "spec.clusterIPs": ["10.0.0.1"]},
     {"spec.type": "ExternalName", "spec.externalName": "a.b"}, ""),
])  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "warnings"),
    [
        ({"clusterIP": "10.0.0.1", "sessionAffinity": "None"}, []),
        ({"clusterIP": "None", "sessionAffinity": "None"}, []),
        (
            {"clusterIP": "None", "sessionAffinity": "ClientIP"},
            ["spec.SessionAffinity is ignored for headless services"],
        ),
        (
            {"clusterIP": "None", "sessionAffinity": "None", "externalIPs": ["1.1.1.1"]},
            ['spec.externalIPs is ignored when spec.clusterIP is "None"'],
        ),
    ],
)
def test_warnings(spec: dict[str, Any], warnings: list[str]) -> None:
    assert warn_service({"spec": spec}, None) == warnings


PORT = {"port": 80, "protocol": "TCP"}


test_row = rows("Service", cases=[
    ({"spec": {"type": "ClusterIP", "clusterIPs": ["10.0.0.1"], "ports": [PORT]}},
     ["x", "ClusterIP", "10.0.0.1", "<none>", "80/TCP", "90s", "<none>"]),
    ({"spec": {"type": "NodePort", "clusterIPs": ["10.0.0.1"],
                          "ports": [{**PORT, "nodePort": 30000}, {**PORT, "port": 81}],
                          "selector": {"b": "2", "a": "1"}}},
     ["x", "NodePort", "10.0.0.1", "<none>", "80:30000/TCP,81/TCP", "90s", "a=1,b=2"]),
    ({"spec": {"type": "LoadBalancer", "clusterIPs": ["10.0.0.1"]}},
     ["x", "LoadBalancer", "10.0.0.1", "<pending>", "<none>", "90s", "<none>"]),
    ({"spec": {"type": "LoadBalancer", "externalIPs": ["9.9.9.9"]},
                 "status": {"loadBalancer": {"ingress": [{"hostname": "lb"}]}}},
     ["x", "LoadBalancer", "<none>", "lb,9.9.9.9", "<none>", "90s", "<none>"]),
    ({"spec": {"type": "ExternalName", "externalName": "a.b"}},
     ["x", "ExternalName", "<none>", "a.b", "<none>", "90s", "<none>"]),
])  # fmt: skip


def test_columns() -> None:
    assert columns("Service") == "Name Type Cluster-IP External-IP Port(s) Age | Selector"


@pytest.mark.parametrize(
    ("before", "after", "dropped"),
    [
        ({"type": "NodePort", "externalTrafficPolicy": "Cluster"}, {"type": "ClusterIP"},
         {"externalTrafficPolicy"}),
        ({"type": "NodePort", "externalTrafficPolicy": "Cluster"},
         {"type": "ClusterIP", "externalTrafficPolicy": "Local"}, set()),
        ({"type": "NodePort", "externalTrafficPolicy": "Cluster"},
         {"type": "ClusterIP", "externalIPs": ["10.0.0.9"]}, set()),
        ({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000,
          "allocateLoadBalancerNodePorts": True, "loadBalancerClass": "x.io/lb"},
         {"type": "NodePort"},
         {"healthCheckNodePort", "allocateLoadBalancerNodePorts", "loadBalancerClass"}),
        ({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": True},
         {"type": "NodePort", "allocateLoadBalancerNodePorts": False}, set()),
        ({"type": "ClusterIP", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"},
         {"type": "ExternalName", "externalName": "x.io"}, {"ipFamilies", "ipFamilyPolicy"}),
    ],
)  # fmt: skip
def test_fields_that_a_new_type_does_not_have_are_dropped(
    before: dict[str, Any], after: dict[str, Any], dropped: set[str]
) -> None:
    status = {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}}
    old = {"metadata": {"name": "s"}, "spec": before, "status": status}
    new = {"metadata": {"name": "s"}, "spec": {**before, **after}}
    KINDS["Service"].strategy.prepare_update(new, old)
    assert new["spec"] == {
        key: value for key, value in {**before, **after}.items() if key not in dropped
    }
    is_balanced = after["type"] == "LoadBalancer"
    assert new["status"] == (status if is_balanced else {"loadBalancer": {}})


@pytest.mark.parametrize("type_", ["ClusterIP", "ExternalName"])
@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        ([30001, 30002], [None, None]),
        # A port that was removed, or lost its number, is no change of the others' numbers.
        ([30002], [None]),
        ([None, 30002], [None, None]),
        ([0, 30001], [None, None]),
        # One that was changed too is refused by validation.
        ([30001, 30003], [30001, 30003]),
    ],
)
def test_node_ports_that_a_user_did_not_change_go_with_the_type(
    wanted: list[int | None], kept: list[int | None], type_: str
) -> None:
    def spec(kind: str, numbers: list[int | None]) -> dict[str, Any]:
        return {"type": kind, "ports": [{"port": 80 + at, "nodePort": number}
                for at, number in enumerate(numbers)]}  # fmt: skip

    new = {"metadata": {"name": "s"}, "spec": spec(type_, wanted)}
    old = {"metadata": {"name": "s"}, "spec": spec("NodePort", [30001, 30002])}
    KINDS["Service"].strategy.prepare_update(new, old)
    assert [port.get("nodePort") for port in new["spec"]["ports"]] == kept


def test_without_affinity_its_settings_go() -> None:
    """An update turns affinity off by its name alone."""
    config = {"clientIP": {"timeoutSeconds": 60}}
    service: dict[str, Any] = {"spec": {"sessionAffinity": "None", "sessionAffinityConfig": config}}
    KINDS["Service"].strategy.default(service)
    assert "sessionAffinityConfig" not in service["spec"]
