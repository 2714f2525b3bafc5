"""Warnings about pods."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.kinds.pod import warn_pod

TERM = {"matchExpressions": [{"key": "beta.kubernetes.io/os", "operator": "Exists"}]}
IN_AFFINITY = (
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution."
    "nodeSelectorTerms[0].matchExpressions[0].key: beta.kubernetes.io/os is deprecated since "
    'v1.14; use "kubernetes.io/os" instead'
)


def container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", **fields}]}


@pytest.mark.parametrize(
    ("spec", "warnings"),
    [
        (container(), []),
        (
            {"nodeSelector": {"beta.kubernetes.io/arch": "amd64"}},
            [
                "spec.nodeSelector[beta.kubernetes.io/arch]: deprecated since v1.14; use "
                '"kubernetes.io/arch" instead'
            ],
        ),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [TERM]
                        }
                    }
                }
            },
            [IN_AFFINITY],
        ),
        (
            {"overhead": {"memory": "100m", "cpu": "100m"}},
            ['spec.overhead[memory]: fractional byte value "100m" is invalid, must be an integer'],
        ),
        (
            container(resources={"limits": {"memory": "500m"}}),
            [
                'spec.containers[0].resources.limits[memory]: fractional byte value "500m" is '
                "invalid, must be an integer"
            ],
        ),
        (
            container(env=[{"name": "A"}, {"name": "B"}, {"name": "A"}]),
            [
                'spec.containers[0].env[2]: hides previous definition of "A", which may be dropped '
                "when using apply"
            ],
        ),
        (
            container(ports=[{"containerPort": 80, "protocol": "TCP"}] * 2),
            [
                "spec.containers[0].ports[1]: duplicate port definition with "
                "spec.containers[0].ports[0]"
            ],
        ),
        (
            container(ports=[{"containerPort": 80, "protocol": "TCP", "hostIP": "x"}]),
            [
                "spec.containers[0].ports[0]: hostIP set without hostPort: {Name: HostPort:0 "
                "ContainerPort:80 Protocol:TCP HostIP:x}"
            ],
        ),
        (
            {"hostAliases": [{"ip": "1.1.1.1"}, {"ip": "1.1.1.1"}]},
            ['spec.hostAliases[1].ip: duplicate ip "1.1.1.1"'],
        ),
        (
            {"imagePullSecrets": [{"name": "a"}, {"name": "a"}, {}]},
            [
                'spec.imagePullSecrets[1].name: duplicate name "a"',
                'spec.imagePullSecrets[2].name: invalid empty name ""',
            ],
        ),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [{}]}}]},
            ['volume "v" (Projected) has no sources provided'],
        ),
        (
            {
                "topologySpreadConstraints": [
                    {"topologyKey": "failure-domain.beta.kubernetes.io/zone"}
                ]
            },
            [
                "spec.topologySpreadConstraints[0].topologyKey: "
                "failure-domain.beta.kubernetes.io/zone is deprecated since v1.17; use "
                '"topology.kubernetes.io/zone" instead'
            ],
        ),
    ],
)
def test_a_new_pod(spec: dict[str, Any], warnings: list[str]) -> None:
    assert warn_pod({"spec": spec}, None) == warnings
    assert warn_pod({"spec": spec}, {"spec": {}}) == []
