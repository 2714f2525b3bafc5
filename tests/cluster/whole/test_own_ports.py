"""Ports of a cluster: closed to pods and other processes; its service addresses are refused."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port
from tests.running import RunningCluster, pod, running, skip_without_kubectl, skip_without_runtimes

pytestmark = pytest.mark.runtime


@pytest.fixture
def name(whole_cluster: RunningCluster) -> Iterator[str]:
    name = f"ports-{uuid.uuid4().hex[:8]}"
    yield name
    whole_cluster.remove("pod", name)


def settings(cluster: RunningCluster) -> Any:
    return json.loads((cluster.data_dir / "cluster.json").read_text())


def listeners(cluster: RunningCluster) -> set[tuple[str, int]]:
    """Where the cluster's processes listen by TCP. Source: proc_pid_net(5), "tcp"."""
    parts = json.loads(cluster.moor("status", "-o", "json").stdout)
    sockets = {
        os.readlink(link)
        for part in parts
        for link in Path(f"/proc/{part['pid']}/fd").iterdir()
        if os.path.lexists(link)
    }
    listening = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
            address, port = fields[1].split(":")
            packed = int(address, 16).to_bytes(4, "little")
            listening.add((socket.inet_ntoa(packed), int(port, 16)))
    return listening


def dns_address(cluster: RunningCluster) -> str:
    return str(ipaddress.IPv4Network(settings(cluster)["pod_network"])[2])


def with_port(name: str, port: int, **more: Any) -> dict[str, Any]:
    ports = [{"containerPort": 80, "hostPort": port, **more}]
    return pod(name, container={"ports": ports})


def test_a_pod_that_asks_for_the_clusters_ports_is_refused(
    whole_cluster: RunningCluster, name: str
) -> None:
    decided = settings(whole_cluster)
    for port, owner, more in (
        (decided["api_port"], "API server", {}),
        (decided["api_port"], "API server", {"hostIP": "127.0.0.1"}),
        (decided["node_port"], "agent of node n1", {}),
    ):
        body = json.dumps(with_port(name, port, **more))
        refused = whole_cluster.kubectl("create", "-f", "-", stdin=body, fails=True)
        assert f"hostPort {port} of container" in refused.stderr
        assert f"is used by the {owner}" in refused.stderr


def test_every_port_of_the_cluster_is_kept_from_host_ports(whole_cluster: RunningCluster) -> None:
    """The engine's streams too, which listen on another port at each start."""
    ours = listeners(whole_cluster)
    assert len(ours) == 7, ours
    saved = subprocess.run(
        ["iptables-save", "-t", "nat"], capture_output=True, text=True, check=True
    ).stdout
    chain = f"MOORAGE-{settings(whole_cluster)['cluster_id']}-PORTS"
    dns = dns_address(whole_cluster)
    assert (dns, 53) in ours
    assert f"-A {chain} -d {dns}/32 -p udp -m udp --dport 53 -j ACCEPT" in saved
    for address, port in ours:
        assert f"-A {chain} -d {address}/32 -p tcp -m tcp --dport {port} -j ACCEPT" in saved


def listen_too(address: str, port: int) -> None:
    """Listen with every option that lets processes share a port. Raises OSError."""
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind((address, port))
        thief.listen()


def test_no_other_process_can_share_the_clusters_ports(whole_cluster: RunningCluster) -> None:
    """As a pod on the host's network could try, which asks for no host port."""
    for address, port in listeners(whole_cluster):
        for taken in (address, "0.0.0.0"):
            with pytest.raises(OSError, match="in use"):
                listen_too(taken, port)


def test_service_addresses_that_lead_nowhere_are_refused_at_once(
    whole_cluster: RunningCluster, name: str
) -> None:
    whole_cluster.apply(pod(name))
    whole_cluster.wait_ready(name)
    network = ipaddress.IPv4Network(settings(whole_cluster)["service_network"])
    for host, port in ((network[1], "80"), (network[-2], "443")):
        command = ["exec", name, "--", "nc", "-w", "5", str(host), port]
        refused = whole_cluster.kubectl(*command, fails=True)
        assert "Connection refused" in refused.stderr, refused


@contextmanager
def redirected(port: int) -> Iterator[None]:
    """A rule as a host port's, made before the cluster starts: it leads nowhere."""
    rule = ["OUTPUT", "-d", "127.0.0.1/32", "-p", "tcp", "--dport", str(port), "-j", "DNAT",
            "--to-destination", "127.0.0.1:1"]  # fmt: skip
    subprocess.run(["iptables", "-w", "-t", "nat", "-A", *rule], check=True)
    try:
        yield
    finally:
        subprocess.run(["iptables", "-w", "-t", "nat", "-D", *rule], check=True)


@contextmanager
def started_after_a_rule(data_dir: Path, **choices: Any) -> Iterator[RunningCluster]:
    """A cluster that starts after such a rule for its port, and is reached all the same."""
    skip_without_kubectl()
    skip_without_runtimes()
    port = free_port()
    with redirected(port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
        with running(data_dir, api_port=port, node_port=free_port(), **choices) as cluster:
            assert cluster.kubectl("get", "--raw", "/readyz").stdout == "ok"
            chain = f"MOORAGE-{settings(cluster)['cluster_id']}"
            yield cluster
    assert chain not in subprocess.check_output(["iptables-save"], text=True)


def test_a_cluster_that_starts_after_such_a_rule_is_reached(tmp_path: Path) -> None:
    with started_after_a_rule(tmp_path / "data", node_name="n1") as cluster:
        chain = f"MOORAGE-{settings(cluster)['cluster_id']}"
        assert chain in subprocess.check_output(["iptables-save"], text=True)
        cluster.moor("down")
        assert chain not in subprocess.check_output(["iptables-save"], text=True)


def test_a_control_plane_alone_protects_its_port_while_it_runs(tmp_path: Path) -> None:
    """Without pods nothing stays on the machine, though the cluster is not taken down."""
    with started_after_a_rule(tmp_path / "data", has_node=False) as cluster:
        decided = settings(cluster)
        rule = f"-A MOORAGE-{decided['cluster_id']}-PORTS -d 127.0.0.1/32 -p tcp -m tcp"
        saved = subprocess.check_output(["iptables-save"], text=True)
        assert f"{rule} --dport {decided['api_port']} -j ACCEPT" in saved
        cluster.moor("down", "--keep-pods")
        assert decided["cluster_id"] not in subprocess.check_output(["iptables-save"], text=True)
