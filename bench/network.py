"""What Services and DNS cost, as root: `python -m bench.network [CONNECT|CHANGE|DNS …]`.

CONNECT opens and closes connections of TCP from one network namespace to another through a router
with the rules of 10, 1,000 and 10,000 Services: directly and by a cluster IP, alternating; printed
are the medians and their ratio. CHANGE is a change of endpoints among 10,000 Services, from slices
to rules in the kernel. DNS is the server on loopback with replies that are kept: answers a second
with 32 queries under way, and the median of one after the other, with a client of another process.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import dnslib
import msgspec

from moorage.api.clock import SystemClock
from moorage.api.services import Service
from moorage.linux.nftables import Nftables
from moorage.network.dns.forwarding import Forwarder
from moorage.network.dns.records import ServiceRecord
from moorage.network.dns.server import DnsServer
from moorage.network.dns.zone import Zone
from moorage.network.frame import IPV4, frame
from moorage.network.objects import EndpointSlice
from moorage.network.services.endpoints import Place
from moorage.network.services.rules import service_fragment
from moorage.network.tables import Fragment, Table

PODS = ipaddress.ip_network("10.245.0.0/24")
SERVICES = "10.97.0.0/16"
CLIENT, SERVER = "10.245.0.3", "10.245.0.4"
SERVE = """
import socket
listener = socket.create_server(("", 8080), backlog=1000)
print("listening", flush=True)
while True:
    listener.accept()[0].close()
"""
CONNECT = """
import socket, sys, time, statistics
ends = [(one.split(":")[0], int(one.split(":")[1])) for one in sys.argv[2:]]
spent = {end: [] for end in ends}
for _ in range(int(sys.argv[1])):
    for end in ends:
        began = time.perf_counter()
        with socket.create_connection(end) as one:
            one.recv(1)
        spent[end].append(time.perf_counter() - began)
print(*(statistics.median(spent[end]) * 1e6 for end in ends))
"""
ASK = """
import socket, statistics, sys, time
address, count = ("127.0.0.1", int(sys.argv[1])), int(sys.argv[2])
query = bytes.fromhex(sys.argv[3])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    one.connect(address)
    one.settimeout(1)
    spent = []
    for _ in range(count // 10):
        began = time.perf_counter()
        one.send(query)
        one.recv(512)
        spent.append(time.perf_counter() - began)
    began, sent, got = time.perf_counter(), 0, 0
    while got < count:
        while sent - got < 32 and sent < count:
            one.send(query)
            sent += 1
        one.recv(512)
        got += 1
    print(statistics.median(spent) * 1e3, count / (time.perf_counter() - began))
"""


def fragment(number: int, endpoints: int = 3) -> Fragment:
    """Return the rules of one of many Services."""
    name = f"s{number}"
    address = f"10.97.{number // 250}.{number % 250 + 1}"
    service = msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "d"},
            "spec": {
                "type": "ClusterIP",
                "clusterIP": address,
                "ports": [{"port": 80, "protocol": "TCP"}],
            },
        },
        Service,
    )
    # The first Service is the one that is measured.
    ends = [
        SERVER if number == 0 else f"10.245.0.{5 + (number + at) % 240}" for at in range(endpoints)
    ]
    slices = msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "d"},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [end], "nodeName": "n"} for end in ends],
            "ports": [{"port": 8080, "protocol": "TCP"}],
        },
        EndpointSlice,
    )
    return service_fragment(service, [slices], IPV4, Place("n"), PODS)


def table(services: int) -> Table:
    """Return a table with so many Services; both pods may do everything."""
    one = Table("ip", "moorage-bench", frame(IPV4, str(PODS), SERVICES))
    for number in range(services):
        one.replace(f"s{number}", fragment(number))
    allowed = dict.fromkeys((CLIENT, SERVER), "return")
    one.replace("pods", Fragment(elements={"ingress": allowed, "egress": allowed}))
    return one


def run(*argv: str, stdin: str = "") -> str:
    """Run a program and return its output."""
    return subprocess.run(argv, check=True, capture_output=True, text=True, input=stdin).stdout


@contextmanager
def pods() -> Iterator[str]:
    """Yield the name of a router's namespace, between those of a client and of a server."""
    with ExitStack() as stack:
        for name in ("mb-router", "mb-client", "mb-server"):
            run("ip", "netns", "add", name)
            stack.callback(run, "ip", "netns", "delete", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        for name, address in (("client", CLIENT), ("server", SERVER)):
            link, place = f"to-{name}", f"mb-{name}"
            run("ip", "-n", "mb-router", "link", "add", link, "type", "veth",
                "peer", "eth0", "netns", place)  # fmt: skip
            run("ip", "-n", "mb-router", "addr", "add", "10.245.0.1/32", "dev", link)
            run("ip", "-n", "mb-router", "link", "set", link, "up")
            run("ip", "-n", "mb-router", "route", "add", address, "dev", link)
            run("ip", "-n", place, "addr", "add", f"{address}/32", "dev", "eth0")
            run("ip", "-n", place, "link", "set", "eth0", "up")
            run("ip", "-n", place, "route", "add", "10.245.0.1", "dev", "eth0")
            run("ip", "-n", place, "route", "add", "default", "via", "10.245.0.1")
        inside("mb-router", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        server = subprocess.Popen(
            ["ip", "netns", "exec", "mb-server", sys.executable, "-c", SERVE],
            stdout=subprocess.PIPE,
        )
        stack.callback(server.wait)
        stack.callback(server.kill)
        assert server.stdout is not None
        server.stdout.readline()
        yield "mb-router"


def inside(name: str, *argv: str, stdin: str = "") -> str:
    """Run a program in a network namespace and return its output."""
    return run("ip", "netns", "exec", name, *argv, stdin=stdin)


def connect(connections: int) -> None:
    """Print what a connection by a cluster IP takes over a direct one."""
    apply = (
        "import sys; from moorage.linux.nftables import Nftables; Nftables().run(sys.stdin.read())"
    )
    with pods() as router:
        for services in (10, 1000, 10_000):
            inside(router, sys.executable, "-c", apply, stdin=table(services).script())
            argv = (sys.executable, "-c", CONNECT, str(connections))
            output = inside("mb-client", *argv, f"{SERVER}:8080", "10.97.0.1:80")
            direct, routed = map(float, output.split())
            print(
                f"CONNECT {services:6} Services  {direct:7.1f} µs directly, {routed:7.1f} µs by "
                f"cluster IP, {routed / direct:.3f} times"
            )


def change(rounds: int) -> None:
    """Print how long a change of endpoints takes among 10,000 Services."""
    kernel, one = Nftables(), table(10_000)
    try:
        began = time.perf_counter()
        kernel.run(one.script())
        print(f"CHANGE  10000 Services  written in {time.perf_counter() - began:.2f} s")
        spent = []
        for number in range(rounds):
            began = time.perf_counter()
            kernel.run(one.replace("s77", fragment(77, 1 + number % 5)))
            spent.append((time.perf_counter() - began) * 1e3)
        print(
            f"CHANGE  10000 Services  {statistics.median(spent):.1f} ms, at most {max(spent):.1f}"
        )
    finally:
        kernel.run("add table ip moorage-bench\ndelete table ip moorage-bench\n")


async def dns(answers: int) -> None:
    """Print the answers a second of the DNS server, and the median of one."""
    zone = Zone("cluster.local", "10.97.0.10")
    zone.set_namespace("default", is_there=True)
    zone.set_service("default/web", ServiceRecord(("10.97.0.1",)))
    server = DnsServer(zone, Forwarder([]), SystemClock())
    server.is_ready = True
    query = dnslib.DNSRecord.question("web.default.svc.cluster.local").pack()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        datagrams.setblocking(False)
        datagrams.bind(("127.0.0.1", 0))
        running = asyncio.ensure_future(server.run(datagrams, listener))
        argv = (str(datagrams.getsockname()[1]), str(answers), query.hex())
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ASK, *argv, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await client.communicate()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    median_ms, each_s = map(float, output.split())
    print(f"DNS     {each_s:,.0f} answers/s, {median_ms:.3f} ms at the median")


def main() -> None:
    kinds = ["CONNECT", "CHANGE", "DNS"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", nargs="*", metavar="|".join(kinds))
    parser.add_argument("--count", type=int, default=2000)
    options = parser.parse_args()
    wanted = options.what or kinds
    if unknown := set(wanted) - set(kinds):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if "CONNECT" in wanted:
        connect(options.count)
    if "CHANGE" in wanted:
        change(100)
    if "DNS" in wanted:
        asyncio.run(dns(options.count * 50))


if __name__ == "__main__":
    main()
