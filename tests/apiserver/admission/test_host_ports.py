"""Host ports that the cluster itself uses are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.errors import ForbiddenError
from moorage.api.host_ports import Listener
from moorage.api.nodes import Node
from moorage.apiserver.admission.host_ports import HostPortAdmission
from tests.apiserver.admission.writes import admit, pod, write

API = (Listener("API server", "127.0.0.1", 6443), Listener("API server", "10.244.0.1", 6443))


def node(name: str, address: str, port: int) -> Node:
    status = {
        "addresses": [{"type": "Hostname", "address": name},
                      {"type": "InternalIP", "address": address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }  # fmt: skip
    return msgspec.convert({"metadata": {"name": name}, "status": status}, Node)


NODES = (node("n1", "192.0.2.1", 10250), node("n2", "192.0.2.2", 10251))
PLUGIN = HostPortAdmission(API, lambda: NODES)


def asking(*ports: dict[str, Any], which: str = "containers", **spec: Any) -> dict[str, Any]:
    own = {"name": "c", "image": "i", "ports": list(ports)}
    others = [{"name": "other", "image": "i"}]
    return pod({"containers": others, which: [own], **spec})


def check(obj: dict[str, Any]) -> None:
    admit(PLUGIN, write(obj=obj))


def refusal_of(obj: dict[str, Any]) -> str:
    with pytest.raises(ForbiddenError) as refusal:
        check(obj)
    return refusal.value.message


def port(number: int, **more: Any) -> dict[str, Any]:
    return {"containerPort": 80, "hostPort": number, **more}


@pytest.mark.parametrize("which", ["containers", "initContainers"])
@pytest.mark.parametrize(
    "address",
    ["", "0.0.0.0", "127.0.0.1", "::", "0:0::0", "::ffff:127.0.0.1", "::ffff:7f00:1",
     "::ffff:0.0.0.0"],
)  # fmt: skip
def test_the_ports_of_the_api_server(which: str, address: str) -> None:
    wanted = port(6443, protocol="TCP", **({"hostIP": address} if address else {}))
    assert refusal_of(asking({"containerPort": 1}, wanted, which=which)) == (
        'pods "p" is forbidden: hostPort 6443 of container "c" is used by the API server '
        "(127.0.0.1:6443); choose another port"
    )


def test_each_address_it_listens_on_counts() -> None:
    assert "(10.244.0.1:6443)" in refusal_of(asking(port(6443, hostIP="10.244.0.1")))
    check(asking(port(6443, hostIP="192.0.2.9")))


def test_the_ports_of_agents_where_the_pod_may_come_to() -> None:
    assert refusal_of(asking(port(10251))) == (
        'pods "p" is forbidden: hostPort 10251 of container "c" is used by the agent of node n2 '
        "(192.0.2.2:10251); choose another port"
    )
    assert "agent of node n1" in refusal_of(asking(port(10250), nodeName="n1"))
    check(asking(port(10251), nodeName="n1"))


def test_a_pod_on_the_hosts_network_cannot_have_them_either() -> None:
    wanted = {"containerPort": 6443, "hostPort": 6443}
    assert "is used by the API server" in refusal_of(asking(wanted, hostNetwork=True))


def test_other_ports_and_protocols_are_free() -> None:
    check(pod())
    check(asking(port(8080), {"containerPort": 6443}, port(6443, protocol="UDP")))


def test_a_node_that_has_not_reported_yet_has_no_port() -> None:
    silent = HostPortAdmission(API, lambda: [Node()])
    admit(silent, write(obj=asking(port(10250))))
