"""CNI runtime configuration of a pod: capability arguments and CNI_ARGS."""

from __future__ import annotations

import pytest

from moorage.engine.errors import InvalidError
from moorage.engine.sandboxes.namespaces import capability_args, cni_runtime_conf
from moorage.wire.cri import pb


def test_a_pod_without_wishes_has_no_arguments() -> None:
    mapped = pb.PodSandboxConfig(port_mappings=[pb.PortMapping(container_port=80)])
    for config in (pb.PodSandboxConfig(), mapped):
        assert capability_args(config) == {}


def test_host_ports_become_mappings() -> None:
    ports = [
        pb.PortMapping(protocol=pb.UDP, container_port=53, host_port=5353, host_ip="127.0.0.1"),
        pb.PortMapping(container_port=80, host_port=8080),
        pb.PortMapping(protocol=pb.SCTP, container_port=9, host_port=9),
        pb.PortMapping(container_port=81),
    ]
    assert capability_args(pb.PodSandboxConfig(port_mappings=ports)) == {
        "portMappings": [
            {"hostPort": 5353, "containerPort": 53, "protocol": "udp", "hostIP": "127.0.0.1"},
            {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
            {"hostPort": 9, "containerPort": 9, "protocol": "sctp"},
        ]
    }


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        (
            {"kubernetes.io/ingress-bandwidth": "10M"},
            {"ingressRate": 10_000_000, "ingressBurst": 10_000_000},
        ),
        ({"kubernetes.io/egress-bandwidth": "1Ki"}, {"egressRate": 1024, "egressBurst": 1 << 20}),
    ],
)
def test_bandwidth_is_in_bits(annotations: dict[str, str], expected: dict[str, int]) -> None:
    config = pb.PodSandboxConfig(annotations=annotations)
    assert capability_args(config) == {"bandwidth": expected}


def test_invalid_bandwidth_is_rejected() -> None:
    config = pb.PodSandboxConfig(annotations={"kubernetes.io/egress-bandwidth": "fast"})
    with pytest.raises(InvalidError, match="egress-bandwidth"):
        capability_args(config)


def test_plugins_receive_the_pods_identity() -> None:
    metadata = pb.PodSandboxMetadata(name="web", namespace="shop", uid="u1")
    conf = cni_runtime_conf("abc", pb.PodSandboxConfig(metadata=metadata))
    assert conf.container_id == "abc"
    assert dict(conf.args) == {
        "IgnoreUnknown": "1",
        "K8S_POD_NAMESPACE": "shop",
        "K8S_POD_NAME": "web",
        "K8S_POD_INFRA_CONTAINER_ID": "abc",
        "K8S_POD_UID": "u1",
    }
