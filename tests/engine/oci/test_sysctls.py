from __future__ import annotations

from pathlib import Path

import pytest

from moorage.engine.errors import InvalidError
from moorage.engine.oci import sandbox_sysctls, sysctl
from moorage.engine.oci.sysctls import sysctl_path
from moorage.wire.cri import pb
from tests.engine.oci.requests import pod
from tests.engine.oci.test_namespaces import USERNS


@pytest.mark.parametrize(
    ("key", "namespace", "file"),
    [
        ("net.core.somaxconn", "network", "net/core/somaxconn"),
        ("net/core/somaxconn", "network", "net/core/somaxconn"),
        ("net.ipv4.conf.eth0/1.forwarding", "network", "net/ipv4/conf/eth0.1/forwarding"),
        ("net/ipv4/conf/eth0.1/forwarding", "network", "net/ipv4/conf/eth0.1/forwarding"),
        ("kernel.shm_rmid_forced", "ipc", "kernel/shm_rmid_forced"),
        ("kernel.msgmax", "ipc", "kernel/msgmax"),
        ("fs.mqueue.msg_max", "ipc", "fs/mqueue/msg_max"),
        *(
            (f"kernel.{name}", "ipc", f"kernel/{name}")
            for name in ("msgmnb", "msgmni", "sem", "shmall", "shmmax", "shmmni")
        ),
        ("kernel.domainname", "uts", "kernel/domainname"),
        ("kernel.hostname", "uts", "kernel/hostname"),
    ],
)
def test_where_a_parameter_belongs(key: str, namespace: str, file: str) -> None:
    settings = sysctl(key, "1")
    assert (settings.namespace, settings.file) == (namespace, Path("/proc/sys", file))


@pytest.mark.parametrize("key", ["vm.swappiness", "kernel.pid_max", "fs.file-max", "kernel.semx"])
def test_the_machines_parameters_are_refused(key: str) -> None:
    with pytest.raises(InvalidError, match="is not namespaced"):
        sysctl(key, "1")


@pytest.mark.parametrize("key", ["", "net", ".", "net..core", "net/../kernel/x", "/net/core", "a."])
def test_invalid_sysctl_name_is_rejected(key: str) -> None:
    with pytest.raises(InvalidError, match="not a sysctl name"):
        sysctl_path(key)


def values(config: pb.PodSandboxConfig) -> dict[str, str]:
    return {sysctl.key: sysctl.value for sysctl in sandbox_sysctls(config)}


def test_a_pod_may_use_low_ports_and_ping_unless_it_says_otherwise() -> None:
    assert values(pod()) == {
        "net.ipv4.ip_unprivileged_port_start": "0",
        "net.ipv4.ping_group_range": "0 2147483647",
    }
    config = pod()
    config.linux.sysctls["net.ipv4.ip_unprivileged_port_start"] = "1024"
    assert values(config)["net.ipv4.ip_unprivileged_port_start"] == "1024"


def test_defaults_leave_the_hosts_network_and_unmapped_groups_alone() -> None:
    assert values(pod(namespace_options=pb.NamespaceOption(network=pb.NODE))) == {}
    mapped = pod(namespace_options=pb.NamespaceOption(userns_options=USERNS))
    assert "net.ipv4.ping_group_range" not in values(mapped)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        (pb.NamespaceOption(network=pb.NODE), "net.core.somaxconn"),
        (pb.NamespaceOption(network=pb.NODE), "kernel.domainname"),
        (pb.NamespaceOption(ipc=pb.NODE), "kernel.shmmax"),
    ],
)
def test_a_shared_namespace_is_not_changed(options: pb.NamespaceOption, key: str) -> None:
    config = pod(namespace_options=options)
    config.linux.sysctls[key] = "1"
    with pytest.raises(InvalidError, match="the pod uses the host's"):
        sandbox_sysctls(config)
