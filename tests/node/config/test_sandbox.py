from __future__ import annotations

from pathlib import Path

import pytest

from moorage.node.config.dns import Resolver
from moorage.node.config.sandbox import SandboxSetting, dotted, sandbox_config
from moorage.wire.cri import pb
from tests.node.objects import UID, a_pod, wire_container

SETTING = SandboxSetting(
    owner="c1_n1",
    handler="crun",
    log_directory=Path("/var/log/pods/x"),
    cgroup_parent="/moorage/kubepods/podx",
    cluster_domain="cluster.local",
    resolver=Resolver(("10.96.0.10",), ("svc",), ("ndots:5",)),
)


def test_metadata_labels_and_cgroup_parent() -> None:
    pod = a_pod(meta={"labels": {"tier": "front"}, "annotations": {"note": "x"}})
    config = sandbox_config(pod, 3, SETTING)
    assert config.metadata == pb.PodSandboxMetadata(
        name="web", namespace="shop", uid=UID, attempt=3
    )
    assert config.labels == {
        "tier": "front",
        "io.kubernetes.pod.name": "web",
        "io.kubernetes.pod.namespace": "shop",
        "io.kubernetes.pod.uid": UID,
        "moorage.dev/node": "c1_n1",
    }
    assert config.annotations == {
        "note": "x",
        "moorage.dev/runtime-class": "",
        "moorage.dev/runtime-handler": "crun",
    }
    assert (config.hostname, config.log_directory) == ("web", "/var/log/pods/x")
    assert config.dns_config == pb.DNSConfig(
        servers=["10.96.0.10"], searches=["svc"], options=["ndots:5"]
    )
    assert config.linux.cgroup_parent == "/moorage/kubepods/podx"


def test_a_pods_author_cannot_write_its_owner_class_or_handler() -> None:
    chosen = {
        "moorage.dev/node": "c2_n1",
        "moorage.dev/runtime-class": "other",
        "moorage.dev/runtime-handler": "runc",
    }
    pod = a_pod(meta={"labels": chosen, "annotations": chosen}, runtimeClassName="fast")
    config = sandbox_config(pod, 0, SETTING)
    assert config.labels["moorage.dev/node"] == "c1_n1"
    assert config.annotations["moorage.dev/runtime-class"] == "fast"
    assert config.annotations["moorage.dev/runtime-handler"] == "crun"


def test_on_the_nodes_network_it_has_the_nodes_name() -> None:
    assert sandbox_config(a_pod(hostNetwork=True), 0, SETTING).hostname == ""


def test_ports_of_main_containers_and_sidecars_only() -> None:
    def with_port(name: str, port: int, **fields: str) -> dict[str, object]:
        return wire_container(
            name, ports=[{"containerPort": port, "hostPort": port, "protocol": "UDP"}], **fields
        )

    pod = a_pod(
        with_port("app", 80),
        initContainers=[with_port("side", 81, restartPolicy="Always"), with_port("init", 82)],
    )
    port_mappings = sandbox_config(pod, 0, SETTING).port_mappings
    assert [(port_mapping.host_port, port_mapping.protocol) for port_mapping in port_mappings] == [
        (80, pb.UDP),
        (81, pb.UDP),
    ]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("net.ipv4.tcp_rmem", "net.ipv4.tcp_rmem"),
        ("net/ipv4/tcp_rmem", "net.ipv4.tcp_rmem"),
        ("net/ipv4/conf/eno2.100/rp_filter", "net.ipv4.conf.eno2/100.rp_filter"),
        ("net.ipv4.conf.eno2/100.rp_filter", "net.ipv4.conf.eno2/100.rp_filter"),
    ],
)
def test_sysctls_are_written_with_dots(name: str, wanted: str) -> None:
    assert dotted(name) == wanted
    pod = a_pod(securityContext={"sysctls": [{"name": name, "value": "1"}]})
    assert sandbox_config(pod, 0, SETTING).linux.sysctls == {wanted: "1"}
