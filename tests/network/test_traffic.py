"""What the rules do to packets, in network namespaces: pods with a route each, their node, outside.

pods a, b, c 10.244.0.3 to .5 ── node 10.244.0.1 │ 192.0.2.1 ── outside 192.0.2.2
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from moorage.network.frame import IPV4, POD_LINKS, frame, tables_removal
from moorage.network.policies.state import PolicyState
from moorage.network.services.rules import service_fragment
from moorage.network.services.stale_flows import flows_of, stale_flows
from moorage.network.tables import Fragment, Table
from tests.network.kernel import Namespace, namespace, skip_without_nftables
from tests.network.objects import HERE, PODS, SERVICES, a_pod, a_policy, a_service, a_slice

pytestmark = pytest.mark.root
A, B, C, OUTSIDE, NODE = "10.244.0.3", "10.244.0.4", "10.244.0.5", "192.0.2.2", "192.0.2.1"
GATEWAY, DNS, SERVICE = "10.244.0.1", "10.244.0.2", "10.96.0.7"
# Answers with its own name and the client's address, by TCP and by UDP.
SERVE = """
import socket, sys, threading
name, port = sys.argv[1], int(sys.argv[2])
listener = socket.create_server(("", port))
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("", port))
def answer():
    while True:
        data, client = datagrams.recvfrom(100)
        datagrams.sendto(f"{name} {client[0]}".encode(), client)
threading.Thread(target=answer, daemon=True).start()
print("listening", flush=True)
while True:
    connection, client = listener.accept()
    with connection:
        connection.sendall(f"{name} {client[0]}".encode())
"""
ASK = """
import socket, sys
kind, address, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
source = int(sys.argv[5])
for _ in range(count):
    with socket.socket(socket.AF_INET, getattr(socket, kind)) as one:
        one.settimeout(2)
        one.bind(("", source))
        try:
            one.connect((address, port))
            if kind == "SOCK_DGRAM":
                one.send(b"x")
            print(one.recv(100).decode())
        except OSError as error:
            print(type(error).__name__, error.errno)
"""
REFUSED, PROHIBITED, TIMEOUT = (
    ["ConnectionRefusedError 111"],
    ["OSError 113"],
    ["TimeoutError None"],
)


class Net:
    """The namespaces, and the rules of the node."""

    def __init__(self, stack: ExitStack) -> None:
        self.places: dict[str, Namespace] = {
            name: stack.enter_context(namespace()) for name in ("node", "a", "b", "c", "outside")
        }
        node = self.places["node"]
        node.run("ip", "link", "add", "bridge", "type", "bridge")
        node.run("ip", "addr", "add", f"{GATEWAY}/24", "dev", "bridge")
        node.run("ip", "addr", "add", f"{DNS}/32", "dev", "bridge")
        node.run("ip", "link", "set", "bridge", "up")
        node.run("ip", "route", "add", str(SERVICES), "dev", "bridge")
        for name, address in (("a", A), ("b", B), ("c", C)):
            self._join(name, address, GATEWAY)
            node.run("ip", "route", "add", address, "dev", f"to-{name}", "scope", "host")
        self._join("outside", OUTSIDE, NODE)
        node.run("ip", "route", "add", OUTSIDE, "dev", "to-outside")
        node.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        for name in ("a", "b", "outside", "node"):
            self._serve(stack, name)
        self.table = Table("ip", "t", frame(IPV4, str(PODS), str(SERVICES)))
        self.policies = PolicyState([IPV4])

    def _join(self, name: str, address: str, gateway: str) -> None:
        """Join a namespace to the node by a link with an address at each end."""
        place, link = self.places[name], f"to-{name}"
        node = self.places["node"]
        node.run("ip", "link", "add", link, "type", "veth", "peer", "eth0", "netns", place.name)
        node.run("ip", "addr", "add", f"{gateway}/32", "dev", link)
        node.run("ip", "link", "set", link, "up")
        place.run("ip", "addr", "add", f"{address}/32", "dev", "eth0")
        place.run("ip", "link", "set", "eth0", "up")
        place.run("ip", "route", "add", gateway, "dev", "eth0")
        place.run("ip", "route", "add", "default", "via", gateway, "dev", "eth0")

    def _serve(self, stack: ExitStack, name: str) -> None:
        argv = [sys.executable, "-c", SERVE, name, "8080"]
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.places[name].name, *argv], stdout=subprocess.PIPE
        )
        stack.callback(process.wait)
        stack.callback(process.kill)
        assert process.stdout is not None
        assert process.stdout.readline() == b"listening\n"

    def write(self) -> None:
        """Write the whole table, with what the policies say."""
        self.places["node"].apply(self.table.script())

    def change(self, script: str) -> None:
        """Apply a change of the table."""
        self.places["node"].apply(script)

    def settle(self) -> str:
        return "".join(self.table.replace(key, one) for _, key, one in self.policies.changes())

    def serve(self, *ends: Any, **spec: Any) -> str:
        made = service_fragment(a_service(**spec), [a_slice(*ends)], IPV4, HERE, PODS)
        return self.table.replace("service", made)

    def ask(
        self,
        place: str,
        address: str,
        port: int = 80,
        *,
        count: int = 1,
        udp: bool = False,
        source: int = 0,
    ) -> list[str]:
        """Ask from a place; return what each connection got, or its error."""
        kind = "SOCK_DGRAM" if udp else "SOCK_STREAM"
        argv = (sys.executable, "-c", ASK, kind, address, str(port), str(count), str(source))
        return self.places[place].run(*argv).splitlines()


@pytest.fixture(scope="module")
def wired() -> Iterator[Net]:
    skip_without_nftables()
    with ExitStack() as stack:
        yield Net(stack)


@pytest.fixture
def net(wired: Net) -> Net:
    """The network with pods a, b and c admitted, and no other rules."""
    body = frame(IPV4, str(PODS), str(SERVICES), dns=DNS, listeners=[(NODE, 8080)])
    wired.table = Table("ip", "t", body)
    wired.policies = PolicyState([IPV4])
    wired.policies.set_namespace("default", {})
    for address, label in ((A, "a"), (B, "b"), (C, "c")):
        pod = a_pod(address, "default", ("TCP", "http", 8080), app=label)
        wired.policies.set_pod(address, pod)
        links = Fragment(elements={POD_LINKS: {f"to-{label}": ""}})
        wired.table.replace(f"link/{label}", links)
    wired.settle()
    wired.write()
    return wired


@pytest.mark.parametrize("udp", [False, True])
def test_a_service_is_reached_by_pods_and_the_node(net: Net, udp: bool) -> None:
    kind = "UDP" if udp else "TCP"
    ports = ({"port": 8080, "protocol": kind},)
    spec: Any = {"ports": [{"port": 80, "protocol": kind}]}
    made = service_fragment(a_service(**spec), [a_slice(A, B, ports=ports)], IPV4, HERE, PODS)
    net.change(net.table.replace("service", made))
    answers = net.ask("c", SERVICE, count=40, udp=udp)
    assert set(answers) == {f"a {C}", f"b {C}"}
    assert set(net.ask("node", SERVICE, count=40, udp=udp)) == {f"a {GATEWAY}", f"b {GATEWAY}"}
    # A pod that gets itself is seen from the gateway.
    assert set(net.ask("a", SERVICE, count=40, udp=udp)) == {f"a {GATEWAY}", f"b {A}"}


def test_a_node_port_is_reached_from_outside_with_the_clients_address(net: Net) -> None:
    net.change(net.serve(A, type="NodePort", ports=[{"port": 80, "nodePort": 30080}]))
    assert net.ask("outside", NODE, 30080) == [f"a {OUTSIDE}"]
    assert net.ask("node", NODE, 30080) == [f"a {NODE}"]
    assert net.ask("c", NODE, 30080) == [f"a {C}"]


def test_with_affinity_a_client_stays(net: Net) -> None:
    net.change(net.serve(A, B, sessionAffinity="ClientIP"))
    assert len(set(net.ask("c", SERVICE, count=20))) == 1


def test_an_endpoint_that_is_no_pod_sees_the_node(net: Net) -> None:
    net.change(net.serve({"addresses": [OUTSIDE]}))
    assert net.ask("node", SERVICE) == [f"outside {NODE}"]


def test_services_that_lead_nowhere_are_refused(net: Net) -> None:
    net.change(net.serve())
    for place in ("c", "node"):
        assert net.ask(place, SERVICE) == REFUSED
        assert net.ask(place, "10.96.9.9") == REFUSED
    assert net.ask("c", "10.96.9.9", udp=True) == REFUSED
    # The kernel has this errno for what a rule refuses to a local sender of datagrams.
    assert net.ask("node", "10.96.9.9", udp=True) == ["PermissionError 1"]


def test_a_change_of_endpoints_is_in_force_at_once(net: Net) -> None:
    net.change(net.serve(A))
    assert net.ask("c", SERVICE) == [f"a {C}"]
    net.change(net.serve(B))
    assert net.ask("c", SERVICE, count=10) == [f"b {C}"] * 10


def test_a_client_of_udp_leaves_an_endpoint_that_is_gone(net: Net) -> None:
    if shutil.which("conntrack") is None:
        pytest.skip("conntrack is not installed")
    ports = ({"port": 8080, "protocol": "UDP"},)
    service = a_service(ports=[{"port": 80, "protocol": "UDP"}])
    first, second = (
        service_fragment(service, [a_slice(address, ports=ports)], IPV4, HERE, PODS)
        for address in (A, B)
    )
    net.change(net.table.replace("service", first))
    asked: Any = {"udp": True, "source": 4000}
    assert net.ask("c", SERVICE, **asked) == [f"a {C}"]
    net.change(net.table.replace("service", second))
    # The flow of the client's port goes where it went.
    assert net.ask("c", SERVICE, **asked) == [f"a {C}"]
    for flow in stale_flows(first, second):
        net.places["node"].run("conntrack", *flow.arguments)
    assert net.ask("c", SERVICE, **asked) == [f"b {C}"]


def test_a_pod_inherits_no_connection_of_its_address(net: Net) -> None:
    if shutil.which("conntrack") is None:
        pytest.skip("conntrack is not installed")
    asked: Any = {"port": 8080, "udp": True, "source": 4001}
    assert net.ask("c", A, **asked) == [f"a {C}"]
    # The next pod with this address lets no one in.
    net.policies.set_policy("default", "deny", a_policy("deny", ingress=[]))
    net.change(net.settle())
    assert net.ask("c", A, **asked) == [f"a {C}"]
    for flow in flows_of(A):
        net.places["node"].run("conntrack", *flow.arguments)
    assert net.ask("c", A, **asked) == PROHIBITED


def test_an_address_without_rules_reaches_nothing(net: Net) -> None:
    net.policies.set_pod(C, None)
    net.change(net.settle())
    assert net.ask("c", A, 8080) == TIMEOUT
    assert net.ask("c", GATEWAY, 8080) == TIMEOUT
    assert net.ask("c", OUTSIDE, 8080) == TIMEOUT
    assert net.ask("a", C, 8080) == PROHIBITED


def test_a_policy_lets_in_whom_it_names(net: Net) -> None:
    net.change(net.serve(A))
    net.policies.set_policy("default", "deny", a_policy("deny", ingress=[]))
    net.change(net.settle())
    assert net.ask("c", A, 8080) == PROHIBITED
    assert net.ask("c", SERVICE) == PROHIBITED
    assert net.ask("outside", A, 8080) == PROHIBITED
    # Probes of the node pass, and so does a pod's way to itself.
    assert net.ask("node", A, 8080) == [f"a {GATEWAY}"]
    assert net.ask("a", SERVICE) == [f"a {GATEWAY}"]
    rule = {"from": [{"podSelector": {"matchLabels": {"app": "c"}}}], "ports": [{"port": "http"}]}
    allow = a_policy("allow", podSelector={"matchLabels": {"app": "a"}}, ingress=[rule])
    net.policies.set_policy("default", "allow", allow)
    net.change(net.settle())
    assert net.ask("c", SERVICE) == [f"a {C}"]
    assert net.ask("b", SERVICE) == PROHIBITED


def test_a_policy_lets_out_where_it_names(net: Net) -> None:
    blocks = [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["192.0.2.0/24", "10.244.0.4/32"]}}]
    policy = a_policy(podSelector={"matchLabels": {"app": "c"}}, egress=[{"to": blocks}])
    net.policies.set_policy("default", "p", policy)
    net.change(net.settle())
    assert net.ask("c", A, 8080) == [f"a {C}"]
    assert net.ask("c", B, 8080) == PROHIBITED
    assert net.ask("c", OUTSIDE, 8080) == PROHIBITED
    assert net.ask("c", NODE, 8080) == PROHIBITED
    assert net.ask("c", GATEWAY, 8080) == [f"node {C}"]


@pytest.mark.parametrize(
    ("place", "source", "rule"),
    [
        *(("c", source, "pod-links") for source in (B, "203.0.113.5", GATEWAY)),
        ("outside", B, "ip saddr 10.244.0.0/24"),
    ],
)
def test_no_one_has_the_address_of_a_pod_but_itself(
    net: Net, place: str, source: str, rule: str
) -> None:
    pod, node = net.places[place], net.places["node"]
    send = (
        "import socket, sys\n"
        "with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:\n"
        "    one.bind((sys.argv[1], 0))\n"
        "    one.sendto(b'x', (sys.argv[2], 8080))\n"
    )
    pod.run("ip", "addr", "add", f"{source}/32", "dev", "lo")
    try:
        pod.run(sys.executable, "-c", send, source, A)
    finally:
        pod.run("ip", "addr", "del", f"{source}/32", "dev", "lo")
    seen = node.run("nft", "list", "chain", "ip", "t", "spoofing")
    (line,) = [line for line in seen.splitlines() if "packets 1 bytes 29 drop" in line]
    assert rule in line


def test_a_service_gets_no_port_of_the_cluster_itself(net: Net) -> None:
    net.change(net.serve(A, externalIPs=[NODE], ports=[{"port": 8080, "nodePort": 8080}]))
    assert net.ask("outside", NODE, 8080) == [f"node {OUTSIDE}"]
    assert net.ask("c", NODE, 8080) == [f"node {C}"]
    assert net.ask("node", NODE, 8080) == [f"node {NODE}"]


def test_the_dns_answers_pods_and_the_host_alone(net: Net) -> None:
    assert net.ask("c", DNS, 8080) == [f"node {C}"]
    assert net.ask("node", DNS, 8080) == [f"node {DNS}"]
    assert net.ask("outside", DNS, 8080) == TIMEOUT
    assert net.ask("outside", DNS, 8080, udp=True) == TIMEOUT


def test_a_host_port_takes_nothing_from_the_dns(net: Net) -> None:
    """As the CNI plugin portmap has it, for any address of the host."""
    chains = (
        f"chain {hook} {{ type nat hook {hook} priority -100; fib daddr type local "
        f"udp dport {{ 53, 54 }} dnat to {A}:8080; }}"
        for hook in ("prerouting", "output")
    )
    net.change(f"table ip other {{ {'; '.join(chains)}; }}\n")
    try:
        assert net.ask("c", DNS, 54, udp=True) == [f"a {C}"]
        assert net.ask("c", DNS, 53, udp=True) == REFUSED
        assert net.ask("node", DNS, 53, udp=True) == REFUSED
    finally:
        net.change("delete table ip other\n")


def test_a_pod_sends_no_broadcast_without_an_address(net: Net) -> None:
    # 0.0.0.0 to 255.255.255.255, as a client of DHCP: the kernel sends it by a packet socket alone.
    send = (
        "import socket\n"
        "with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as one:\n"
        "    head = bytes.fromhex('4500001d0000000040117ad100000000ffffffff')\n"
        "    data = head + bytes.fromhex('00441f90000900007a')\n"
        "    one.sendto(data, ('eth0', 0x800, 0, 0, b'\\xff' * 6))\n"
    )
    net.places["c"].run(sys.executable, "-c", send)
    seen = net.places["node"].run("nft", "list", "chain", "ip", "t", "spoofing")
    assert "ip saddr != 10.244.0.0/24 counter packets 1 bytes" in seen


def test_source_ranges_of_a_load_balancer(net: Net) -> None:
    spec: Any = {
        "type": "LoadBalancer", "status": {"loadBalancer": {"ingress": [{"ip": NODE}]}},
    }  # fmt: skip
    net.change(net.serve(A, loadBalancerSourceRanges=["198.51.100.0/24"], **spec))
    assert net.ask("outside", NODE) == TIMEOUT
    net.change(net.serve(A, loadBalancerSourceRanges=["192.0.2.2/32"], **spec))
    assert net.ask("outside", NODE) == [f"a {OUTSIDE}"]


def test_nothing_is_left_of_tables_that_are_removed(net: Net) -> None:
    script = tables_removal("x").replace("moorage-x", "t")
    net.change(script)
    net.change(script)
    assert net.places["node"].run("nft", "list", "tables") == ""


def test_the_kernel_takes_the_rules_of_many_services(net: Net) -> None:
    for number in range(300):
        service = a_service(
            f"s{number}",
            f"10.96.1.{number % 250}",
            sessionAffinity="None" if number % 7 else "ClientIP",
            ports=[{"port": number + 1, "nodePort": 30000 + number}],
        )
        slices = [a_slice(*[A, B, C][: number % 4])]
        made = service_fragment(service, slices, IPV4, HERE, PODS)
        net.table.replace(f"s{number}", made)
    net.write()
