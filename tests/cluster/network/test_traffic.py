"""What the rules do to connections, in network namespaces: a pod, its host, the outside.

pod 198.51.100.2 ── bridge of the host 198.51.100.1 │ 192.0.2.1 ── outside 192.0.2.2, 10.96.5.5
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from moorage.cluster.network import PodNetwork
from moorage.cluster.network.rules import guard_script, removal_script, setup_script
from tests.cluster.network.networks import OURS

SERVICE = "10.96.5.5"
SERVE = """
import socket, sys
name, address, port = sys.argv[1:]
with socket.create_server((address, int(port))) as listener:
    print("listening", flush=True)
    while True:
        with listener.accept()[0] as connection:
            connection.sendall(name.encode())
"""
ASK = """
import socket, sys
address, port = sys.argv[1:]
try:
    with socket.create_connection((address, int(port)), timeout=3) as connection:
        print(connection.recv(100).decode())
except OSError as error:
    print(type(error).__name__)
"""
SEND = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.settimeout(3)
    sender.connect((sys.argv[1], 53))
    try:
        sender.send(b"x")
        print(sender.recv(100))
    except OSError as error:
        print(type(error).__name__)
"""


@dataclass(frozen=True, slots=True)
class Places:
    """Three network namespaces and the programs in them."""

    prefix: str
    stack: contextlib.ExitStack

    def namespace(self, place: str) -> str:
        return f"{self.prefix}-{place}"

    def run(self, place: str, *argv: str, stdin: str = "") -> str:
        command = ["ip", "netns", "exec", self.namespace(place), *argv]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{argv}\n{stdin}\n{done.stderr}"
        return done.stdout

    def link(self, one: str, other: str, names: tuple[str, str]) -> None:
        pair = ["peer", "name", names[1], "netns", self.namespace(other)]
        namespaces = ["-n", self.namespace(one)]
        subprocess.run(["ip", *namespaces, "link", "add", names[0], "type", "veth", *pair],
                       check=True)  # fmt: skip

    def configure(self, place: str, *lines: str) -> None:
        for line in ("link set lo up", *lines):
            subprocess.run(["ip", "-n", self.namespace(place), *line.split()], check=True)

    def serve(self, place: str, name: str, address: str, port: int) -> None:
        command = ["ip", "netns", "exec", self.namespace(place), sys.executable, "-c", SERVE]
        process = subprocess.Popen(
            [*command, name, address, str(port)], stdout=subprocess.PIPE, text=True
        )
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        assert process.stdout is not None
        self.stack.callback(process.stdout.close)
        assert process.stdout.readline() == "listening\n"

    def ask(self, place: str, address: str, port: int) -> str:
        return self.run(place, sys.executable, "-c", ASK, address, str(port)).strip()

    def send(self, place: str, address: str) -> str:
        return self.run(place, sys.executable, "-c", SEND, address).strip()

    def restore(self, script: str) -> None:
        self.run("host", "iptables-restore", "--noflush", stdin=script)

    def saved(self) -> str:
        return self.run("host", "iptables-save")


@pytest.fixture
def places() -> Iterator[Places]:
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "iptables-restore"))):
        pytest.skip("needs root, ip and iptables")
    with contextlib.ExitStack() as stack:
        places = Places(f"moor-traffic-{os.getpid()}", stack)
        for place in ("pod", "host", "outside"):
            name = places.namespace(place)
            subprocess.run(["ip", "netns", "add", name], check=True)
            stack.callback(subprocess.run, ["ip", "netns", "delete", name], check=True)
        places.link("pod", "host", ("eth0", "vpod"))
        places.link("host", "outside", ("eth0", "eth0"))
        places.configure(
            "host", f"link add {OURS.bridge} type bridge", f"link set {OURS.bridge} up",
            f"addr add 198.51.100.1/24 dev {OURS.bridge}", f"link set vpod master {OURS.bridge}",
            "link set vpod up", "addr add 192.0.2.1/24 dev eth0", "link set eth0 up",
            "route add default via 192.0.2.2",
        )  # fmt: skip
        places.configure(
            "pod", "addr add 198.51.100.2/24 dev eth0", "link set eth0 up",
            "route add default via 198.51.100.1",
        )  # fmt: skip
        places.configure(
            "outside", "addr add 192.0.2.2/24 dev eth0", f"addr add {SERVICE}/32 dev lo",
            "link set eth0 up",
        )  # fmt: skip
        places.run("host", "sysctl", "-qw", "net.ipv4.ip_forward=1",
                   "net.ipv4.conf.all.route_localnet=1")  # fmt: skip
        try:
            places.saved()
        except AssertionError:
            pytest.skip("iptables cannot be used here")
        yield places


def set_up(places: Places, network: PodNetwork = OURS) -> None:
    places.restore(setup_script(network, places.saved()))


@pytest.mark.parametrize("policy", ["ACCEPT", "DROP"])
def test_a_service_address_never_leaves_the_machine(places: Places, policy: str) -> None:
    places.serve("outside", "a stranger", SERVICE, 80)
    places.serve("outside", "the outside", "192.0.2.2", 80)
    places.restore("*nat\n-A POSTROUTING -s 198.51.100.0/24 -j MASQUERADE\nCOMMIT\n")
    assert places.ask("pod", SERVICE, 80) == "a stranger"
    places.restore(f"*filter\n:FORWARD {policy} [0:0]\nCOMMIT\n")
    set_up(places)
    # A local sender of datagrams gets an error at once when a rule stops it.
    for place, unsent in (("pod", "ConnectionRefusedError"), ("host", "PermissionError")):
        assert places.ask(place, SERVICE, 80) == "ConnectionRefusedError"
        assert places.ask(place, "10.96.0.1", 443) == "ConnectionRefusedError"
        assert places.send(place, SERVICE) == unsent
        assert places.ask(place, "192.0.2.2", 80) == "the outside"
    # A second start, and then the end of the cluster.
    set_up(places)
    assert places.ask("pod", SERVICE, 80) == "ConnectionRefusedError"
    places.restore(removal_script(OURS, places.saved()))
    assert "MOORAGE" not in places.saved()
    assert places.ask("host", SERVICE, 80) == "a stranger"


def host_port(port: int) -> str:
    """Rules as portmap makes them for a pod's host port on every address."""
    jump = "-m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT"
    return "\n".join((
        "*nat", ":CNI-HOSTPORT-DNAT - [0:0]", f"-A PREROUTING {jump}", f"-A OUTPUT {jump}",
        f"-A CNI-HOSTPORT-DNAT -p tcp --dport {port} -j DNAT --to-destination 198.51.100.2:80",
        "-A POSTROUTING -s 127.0.0.1 -d 198.51.100.2 -j MASQUERADE",
        "COMMIT", "",
    ))  # fmt: skip


@pytest.mark.parametrize("is_before", [True, False], ids=["the pod first", "the cluster first"])
@pytest.mark.parametrize("script", [setup_script, guard_script], ids=["node", "no node"])
def test_a_host_port_never_takes_the_clusters_own(
    places: Places, script: object, *, is_before: bool
) -> None:
    assert callable(script)
    places.serve("pod", "the pod", "198.51.100.2", 80)
    places.serve("host", "the API", "127.0.0.1", 6443)
    places.serve("host", "the agent", "192.0.2.1", 10250)
    steps: list[Callable[[], object]] = [
        lambda: [places.restore(host_port(port)) for port in (6443, 10250, 8080)],
        lambda: [places.restore(script(OURS, places.saved()))],
    ]
    for step in steps if is_before else reversed(steps):
        step()
    assert places.ask("host", "127.0.0.1", 6443) == "the API"
    assert places.ask("host", "192.0.2.1", 10250) == "the agent"
    assert places.ask("outside", "192.0.2.1", 10250) == "the agent"
    # Other host ports are the pod's, on loopback too.
    assert places.ask("host", "127.0.0.1", 8080) == "the pod"
    assert places.ask("outside", "192.0.2.1", 8080) == "the pod"


def test_without_the_guard_a_host_port_takes_what_listens(places: Places) -> None:
    """The danger that the guard is for: else the test above would show nothing."""
    places.serve("pod", "the pod", "198.51.100.2", 80)
    places.serve("host", "the API", "127.0.0.1", 6443)
    places.restore(host_port(6443))
    assert places.ask("host", "127.0.0.1", 6443) == "the pod"
