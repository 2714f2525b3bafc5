from __future__ import annotations

from typing import Any

import pytest

from moorage.api.host_ports import Listener
from moorage.api.pods import Pod
from moorage.node.pods import admission
from moorage.node.pods.admission import AdmissionInputs, refusal
from tests.node.objects import Wire, a_node, a_pod, wire_container

ALLOCATABLE = {"cpu": "2", "memory": "1Gi", "pods": "3", "ephemeral-storage": "10Gi"}


def asking(requests: Wire | None = None, **fields: Any) -> Pod:
    meta = fields.pop("meta", None)
    container = wire_container(resources={"requests": requests or {}}, **fields.pop("own", {}))
    return a_pod(container, meta=meta, **fields)


def refused(
    pod: Pod,
    *others: Pod,
    node: Wire | None = None,
    groups: bool = True,
    pressure: tuple[str, ...] = (),
    is_shutting_down: bool = False,
) -> tuple[str, str] | None:
    inputs = AdmissionInputs(
        node=a_node(**(node or {})),
        allocatable=ALLOCATABLE,
        has_groups_policy=groups,
        others=others,
        pressure=pressure,
        is_shutting_down=is_shutting_down,
    )
    error = refusal(pod, inputs)
    return None if error is None else (error.reason, error.message)


def test_an_ordinary_pod_is_run() -> None:
    assert refused(asking({"cpu": "1", "memory": "1Gi"}), asking({"cpu": "1"})) is None


@pytest.mark.parametrize("priority", [0, 2_000_001_000])
def test_a_node_that_shuts_down_takes_no_pod(priority: int) -> None:
    wanted = ("NodeShutdown", "Pod was rejected as the node is shutting down.")
    assert refused(asking({"cpu": "1"}, priority=priority), is_shutting_down=True) == wanted


SHORT = "Node didn't have enough resource: "


@pytest.mark.parametrize(
    ("pod", "others", "reason", "numbers"),
    [
        (
            asking({"cpu": "1500m"}, overhead={"cpu": "200m"}),
            [asking({"cpu": "500m"})],
            "OutOfcpu",
            "cpu, requested: 1700, used: 500, capacity: 2000",
        ),
        (
            asking({"cpu": "1"}),
            [asking({"cpu": "1"}, overhead={"cpu": "100m"})],
            "OutOfcpu",
            "cpu, requested: 1000, used: 1100, capacity: 2000",
        ),
        (
            asking({"memory": "2Gi", "cpu": "1"}),
            [],
            "OutOfmemory",
            "memory, requested: 2147483648, used: 0, capacity: 1073741824",
        ),
        (
            asking({"ephemeral-storage": "11Gi"}),
            [],
            "OutOfephemeral-storage",
            "ephemeral-storage, requested: 11811160064, used: 0, capacity: 10737418240",
        ),
        (
            asking(),
            [asking()] * 3,
            "OutOfpods",
            "pods, requested: 1, used: 3, capacity: 3",
        ),
        (
            asking(overhead={"vendor.example/card": "1"}),
            [],
            "OutOfvendor.example/card",
            "vendor.example/card, requested: 1, used: 0, capacity: 0",
        ),
    ],
    ids=["overhead", "others' overhead", "memory", "disk", "pods", "overhead in the unknown"],
)
def test_room(pod: Pod, others: list[Pod], reason: str, numbers: str) -> None:
    assert refused(pod, *others) == (reason, f"{SHORT}{numbers}")


def test_resources_of_vendors_that_the_node_does_not_know_are_forgiven() -> None:
    assert refused(asking({"vendor.example/card": "1"})) is None


AFFINITY = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"


def test_the_node_must_be_one_that_was_asked_for() -> None:
    pod = asking(nodeSelector={"rt": "gvisor"})
    assert refused(pod) == ("NodeAffinity", AFFINITY)
    assert refused(pod, node={"metadata": {"labels": {"rt": "gvisor"}}}) is None


def with_port(host_ip: str = "", port: int = 80, protocol: str = "TCP", **fields: Any) -> Pod:
    ports = [{"containerPort": 1, "hostPort": port, "hostIP": host_ip, "protocol": protocol}]
    return asking(own={"ports": ports}, **fields)


@pytest.mark.parametrize(
    ("one", "other", "collides"),
    [
        (with_port(), with_port(), True),
        (with_port(), with_port(port=81), False),
        (with_port(), with_port(protocol="UDP"), False),
        (with_port("10.0.0.1"), with_port("10.0.0.2"), False),
        (with_port("10.0.0.1"), with_port("0.0.0.0"), True),
        (with_port("10.0.0.1"), with_port(), True),
        (with_port(port=0), with_port(port=0), False),
    ],
    ids=["same", "other port", "other protocol", "other address", "any", "empty", "no host port"],
)
def test_host_ports(one: Pod, other: Pod, collides: bool) -> None:
    wanted = (
        "NodePorts",
        "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
    )
    assert refused(one, other) == (wanted if collides else None)


def taint(effect: str) -> Wire:
    return {"spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}}


STATIC = {"annotations": {"kubernetes.io/config.source": "file"}}


@pytest.mark.parametrize(
    ("pod", "effect", "is_refused"),
    [
        (asking(), "NoExecute", True),
        (asking(), "NoSchedule", False),
        (asking(tolerations=[{"key": "k", "operator": "Exists"}]), "NoExecute", False),
        (asking(meta=STATIC), "NoExecute", False),
    ],
    ids=["no execute", "no schedule", "tolerated", "static"],
)
def test_taints(pod: Pod, effect: str, is_refused: bool) -> None:
    wanted = (
        "TaintToleration",
        "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
    )
    assert refused(pod, node=taint(effect)) == (wanted if is_refused else None)


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        ("kernel.shm_rmid_forced", {}, None),
        ("net.ipv4.tcp_syncookies", {}, None),
        ("net/ipv4/tcp_syncookies", {}, None),
        ("kernel.msgmax", {}, 'forbidden sysctl: "kernel.msgmax" not allowlisted'),
        (
            "net.ipv4.tcp_syncookies",
            {"hostNetwork": True},
            'forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host net enabled',
        ),
        (
            "kernel.shm_rmid_forced",
            {"hostIPC": True},
            'forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host ipc enabled',
        ),
    ],
)
def test_sysctls(name: str, spec: Wire, message: str | None) -> None:
    pod = asking(securityContext={"sysctls": [{"name": name, "value": "1"}]}, **spec)
    assert refused(pod) == (None if message is None else ("SysctlForbidden", message))


def test_another_operating_system() -> None:
    assert refused(asking(os={"name": "linux"})) is None
    assert refused(asking(os={"name": "windows"})) == (
        "PodOSNotSupported",
        "Failed to admit pod as the OS field doesn't match node OS",
    )


def test_strict_groups_need_an_engine_that_knows_them() -> None:
    pod = asking(securityContext={"supplementalGroupsPolicy": "Strict"})
    assert refused(pod) is None
    assert refused(pod, groups=False) == (
        "SupplementalGroupsPolicyNotSupported",
        "SupplementalGroupsPolicy=Strict is not supported in this node",
    )


LISTENERS = (Listener("API server", "127.0.0.1", 6443), Listener("agent", "192.0.2.1", 10250))


@pytest.mark.parametrize(
    ("pod", "where"),
    [
        (with_port(port=6443), "API server (127.0.0.1:6443)"),
        (with_port("127.0.0.1", 6443), "API server (127.0.0.1:6443)"),
        (with_port("192.0.2.1", 10250), "agent (192.0.2.1:10250)"),
        (with_port(port=10250, meta={"annotations": {"kubernetes.io/config.source": "file"}}),
         "agent (192.0.2.1:10250)"),
        (with_port("127.0.0.1", 10250), None),
        (with_port(port=6443, protocol="UDP"), None),
    ],
)  # fmt: skip
def test_no_pod_gets_the_clusters_own_ports(pod: Pod, where: str | None) -> None:
    """Whatever way it came: the API server's admission may not have seen it."""
    inputs = AdmissionInputs(
        node=a_node(), allocatable=ALLOCATABLE, has_groups_policy=True, others=(),
        listeners=LISTENERS,
    )  # fmt: skip
    error = refusal(pod, inputs)
    if where is None:
        assert error is None
        return
    assert error is not None
    number = pod.spec.containers[0].ports[0].host_port
    name = pod.spec.containers[0].name
    assert (error.reason, error.message) == (
        "NodePorts",
        f'Predicate NodePorts failed: hostPort {number} of container "{name}" is used by the '
        f"{where}; choose another port",
    )


def test_which_sysctls_a_pod_may_set() -> None:
    assert {
        f"net.ipv4.{name}"
        for name in (
            "ip_local_port_range", "tcp_syncookies", "ping_group_range",
            "ip_unprivileged_port_start", "ip_local_reserved_ports", "tcp_keepalive_time",
            "tcp_fin_timeout", "tcp_keepalive_intvl", "tcp_keepalive_probes", "tcp_rmem",
            "tcp_wmem",
        )
    } == admission._SAFE_NET  # fmt: skip
    assert {"kernel.shm_rmid_forced"} == admission._SAFE_IPC


MEMORY = ("MemoryPressure",)
BOTH = ("MemoryPressure", "DiskPressure")
TOLERATING = [
    {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}
]


@pytest.mark.parametrize(
    ("pod", "pressure", "is_admitted"),
    [
        (a_pod(), (), True),
        (a_pod(), MEMORY, False),
        (a_pod(tolerations=TOLERATING), MEMORY, True),
        (asking({"memory": "1Gi"}), MEMORY, True),
        (asking({"memory": "1Gi"}), BOTH, False),
        (a_pod(tolerations=TOLERATING), BOTH, False),
        (asking({"memory": "1Gi"}), ("DiskPressure",), False),
        (asking({"memory": "1Gi"}), ("PIDPressure",), False),
        (a_pod(priority=2_000_000_000), BOTH, True),
        (a_pod(meta={"annotations": {"kubernetes.io/config.source": "file"}}), BOTH, True),
    ],
)
def test_a_node_under_pressure_takes_what_upstream_takes(
    pod: Pod, pressure: tuple[str, ...], is_admitted: bool
) -> None:
    wanted = ("Evicted", f"The node had condition: [{' '.join(pressure)}]. ")
    assert refused(pod, pressure=pressure) == (None if is_admitted else wanted)
