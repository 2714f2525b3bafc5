"""Making and removing a network: commands seen by stand-ins for `ip` and iptables."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from moorage.cluster.host import CniPlugins, Firewall, Inventory
from moorage.cluster.network import (
    NetworkError,
    forget,
    protect,
    remove,
    set_up,
    unprotect,
)
from moorage.cluster.network import setup as external
from moorage.cluster.network.subnet import FILE_NAME, HostPlaces
from moorage.linux.command import CommandError
from tests.cluster.hosts import a_host
from tests.cluster.network.networks import OURS
from tests.cluster.network.test_rules import CHAIN, OPEN_FILTER, nat
from tests.cluster.programs import write_program
from tests.linux.test_routes import HEAD, row


class FakeMachine:
    """A search path with `ip` and iptables that keep what they were given."""

    def __init__(self, root: Path) -> None:
        self._said = root / "said"
        self._bin = root / "bin"
        self.rules = root / "rules"
        self.rules.write_text(OPEN_FILTER)
        self.interfaces = root / "net"
        self.interfaces.mkdir()
        self.cache = root / "cni-cache"
        self.routes = root / "route"
        self.network = replace(
            OURS,
            places=HostPlaces(interfaces=self.interfaces, cni_cache=self.cache, routes=self.routes),
        )
        self.program("ip", f'(echo "ip $*"; cat) >> {self._said}')
        self.program("iptables-save", f"cat {self.rules}")
        self.program("iptables-restore", f'(echo "restore $*"; cat) >> {self._said}')

    def host(self, **fields: Any) -> Inventory:
        """Return the host's facts; its programs are on no other path than the one in them."""
        return a_host(path=f"{self._bin}:/usr/bin:/bin", **fields)

    def program(self, name: str, script: str) -> None:
        write_program(self._bin, name, script)

    @property
    def said(self) -> str:
        return self._said.read_text() if self._said.exists() else ""


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def test_places_of_the_kernel_and_of_cni() -> None:
    assert HostPlaces() == OURS.places
    assert str(OURS.places.interfaces) == "/sys/class/net"
    assert str(OURS.places.cni_cache) == "/var/lib/cni/results"
    assert str(OURS.places.routes) == "/proc/net/route"
    assert str(external.CNI_CONFIGURATIONS) == "/etc/cni/net.d"


async def test_a_first_start_makes_everything(machine: FakeMachine, tmp_path: Path) -> None:
    state = await set_up(machine.network, machine.host(), tmp_path / "a b" / "cni")
    assert not state.complaint
    assert "link add moor-0a1b2c3d address 0a:58:c6:33:64:01 type bridge" in machine.said
    assert "link set moor-0a1b2c3d mtu 1450 up" in machine.said
    assert "addr replace 198.51.100.1/24 brd + dev moor-0a1b2c3d" in machine.said
    assert "addr replace 198.51.100.2/32 dev moor-0a1b2c3d" in machine.said
    assert "route replace 10.96.0.0/16 dev moor-0a1b2c3d" in machine.said
    assert f":{CHAIN} - [0:0]" in machine.said
    # Rules of others stay, and other programs may hold the lock for a while.
    assert "restore --noflush --wait 10\n" in machine.said
    document = json.loads((tmp_path / "a b" / "cni" / FILE_NAME).read_text())
    assert [plugin["type"] for plugin in document["plugins"]] == ["ptp", "bandwidth", "portmap"]
    assert [path.name for path in (tmp_path / "a b" / "cni").iterdir()] == [FILE_NAME]


async def test_a_bridge_that_is_there_is_used(machine: FakeMachine, tmp_path: Path) -> None:
    (machine.interfaces / OURS.bridge).mkdir()
    await set_up(machine.network, machine.host(), tmp_path / "cni")
    assert "link add" not in machine.said
    assert "link set" in machine.said


@pytest.mark.parametrize("fails", ["firewall", "save", "restore"])
async def test_without_rules_pods_stay_inside(
    machine: FakeMachine, tmp_path: Path, fails: str
) -> None:
    firewall = Firewall(is_usable=fails != "firewall", complaint="why not" * (fails == "firewall"))
    if fails != "firewall":
        machine.program(f"iptables-{fails}", "echo why not >&2; exit 4")
    state = await set_up(machine.network, machine.host(firewall=firewall), tmp_path / "cni")
    assert "why not" in state.complaint
    document = json.loads((tmp_path / "cni" / FILE_NAME).read_text())
    assert [plugin["type"] for plugin in document["plugins"]] == ["ptp", "bandwidth"]


@pytest.mark.parametrize(
    ("fields", "script", "message"),
    [
        ({"is_root": False}, None, "needs root"),
        ({"cni": CniPlugins(None)}, None, "apt-get install containernetworking-plugins"),
        ({}, "echo 'RTNETLINK answers: Operation not permitted' >&2; exit 2", "not permitted"),
    ],
)
async def test_there_can_be_no_network(
    machine: FakeMachine, tmp_path: Path, fields: dict[str, Any], script: str | None, message: str
) -> None:
    if script:
        machine.program("ip", script)
    with pytest.raises(NetworkError, match=message):
        await set_up(machine.network, machine.host(**fields), tmp_path / "cni")


async def test_removal_asks_again_when_a_plugin_was_at_work(
    machine: FakeMachine, tmp_path: Path
) -> None:
    machine.rules.write_text(nat(f"-A POSTROUTING -j {CHAIN}", chains=(CHAIN,)))
    tried = tmp_path / "tried"
    machine.program(
        "iptables-restore",
        f"if [ -e {tried} ]; then : > {machine.rules}; else touch {tried}; exit 1; fi",
    )
    (machine.interfaces / OURS.bridge).mkdir()
    machine.cache.mkdir()
    (machine.cache / "moorage-0a1b2c3d-c-eth0").touch()
    await remove(machine.network, machine.host())
    assert machine.rules.read_text() == ""
    assert list(machine.cache.iterdir()) == []
    assert "ip link delete moor-0a1b2c3d" in machine.said


async def test_rules_that_cannot_be_removed_are_an_error(
    machine: FakeMachine, tmp_path: Path
) -> None:
    machine.rules.write_text(nat(f"-A POSTROUTING -j {CHAIN}", chains=(CHAIN,)))
    machine.program("iptables-restore", f"echo x >> {tmp_path}/tried; echo no >&2; exit 4")
    with pytest.raises(CommandError, match=r"iptables-restore.*no"):
        await remove(machine.network, machine.host())
    assert len((tmp_path / "tried").read_text().split()) == 3


async def test_removal_of_a_missing_network_is_no_error(machine: FakeMachine) -> None:
    await remove(machine.network, machine.host())
    assert machine.said == ""


async def test_bridge_that_disappears_during_removal_is_no_error(machine: FakeMachine) -> None:
    bridge = machine.interfaces / OURS.bridge
    bridge.mkdir()
    machine.program("ip", f"rmdir {bridge}; echo 'Cannot find device' >&2; exit 1")
    await remove(machine.network, machine.host())


async def test_a_bridge_that_stays_is_an_error(machine: FakeMachine) -> None:
    bridge = machine.interfaces / OURS.bridge
    bridge.mkdir()
    machine.program("ip", "echo 'Operation not permitted' >&2; exit 1")
    with pytest.raises(CommandError, match="Operation not permitted"):
        await remove(machine.network, machine.host())
    assert bridge.exists()


def test_only_our_plugins_memories_are_forgotten(machine: FakeMachine) -> None:
    forget(machine.network, ["s1"])
    machine.cache.mkdir()
    theirs = ("moorage-deadbeef-c-eth0", "cni-loopback-s9-lo", "bridge-x")
    for name in (*theirs, "moorage-0a1b2c3d-c-eth0", "cni-loopback-s1-lo"):
        (machine.cache / name).touch()
    forget(machine.network, ["s1"])
    assert {path.name for path in machine.cache.iterdir()} == set(theirs)


async def test_a_kernel_that_cannot_refuse_gives_pods_a_network_all_the_same(
    machine: FakeMachine, tmp_path: Path
) -> None:
    rules = tmp_path / "given"
    machine.program(
        "iptables-restore",
        f"cat > {rules}; if grep -q REJECT {rules}; then exit 1; fi; cat {rules} >> {tmp_path}/ok",
    )
    state = await set_up(machine.network, machine.host(), tmp_path / "cni")
    assert not state.complaint
    assert "MASQUERADE" in (tmp_path / "ok").read_text()


@pytest.mark.parametrize(
    ("route", "is_refused"), [("0.0.0.0/0", True), ("192.0.2.0/24", True), ("10.96.4.0/24", False)]
)
async def test_a_host_with_a_route_into_the_service_network_keeps_it(
    machine: FakeMachine, route: str, tmp_path: Path,
    *, is_refused: bool,
) -> None:  # fmt: skip
    machine.routes.write_text(f"{HEAD}\n{row('eth1', route)}\n")
    await set_up(machine.network, machine.host(), tmp_path / "cni")
    assert (f"-I OUTPUT 1 -j {CHAIN}-OUT" in machine.said) is is_refused
    assert f"-I FORWARD 1 -j {CHAIN}" in machine.said


async def test_a_cluster_without_pods_of_its_own_protects_its_ports(
    machine: FakeMachine,
) -> None:
    await protect(replace(machine.network, services=None), machine.host())
    assert "--dport 6443 -j ACCEPT" in machine.said
    assert "MASQUERADE" not in machine.said
    assert "*filter" not in machine.said


REFUSED = "-d 10.96.0.0/16 -p tcp -j REJECT"


@pytest.mark.parametrize(
    ("routes", "rules", "has_ipvs", "is_refused"),
    [
        ("0.0.0.0/0", "", False, True),
        ("10.96.4.0/24", "", False, False),
        # A proxy of another cluster here may have the same addresses.
        ("0.0.0.0/0", nat(chains=("KUBE-SERVICES",)), False, False),
        ("0.0.0.0/0", "", True, False),
    ],
)
async def test_service_addresses_are_refused_unless_another_proxy_may_use_them(
    machine: FakeMachine, routes: str, rules: str,
    *, has_ipvs: bool, is_refused: bool,
) -> None:  # fmt: skip
    machine.routes.write_text(f"{HEAD}\n{row('eth1', routes)}\n")
    if has_ipvs:
        (machine.interfaces / "kube-ipvs0").mkdir()
    machine.rules.write_text(rules)
    await protect(machine.network, machine.host(), ("cni0",))
    assert "--dport 6443 -j ACCEPT" in machine.said
    assert (f"-A {CHAIN} -i cni0 {REFUSED}" in machine.said) is is_refused
    assert (f"-A {CHAIN}-OUT {REFUSED}" in machine.said) is is_refused
    assert (f"-I FORWARD 1 -j {CHAIN}" in machine.said) is is_refused


async def test_ports_are_protected_where_nothing_can_be_refused(machine: FakeMachine) -> None:
    machine.program(
        "iptables-restore", "text=$(cat); case $text in *REJECT*) exit 4;; esac; "
        f"echo \"$text\" >> {machine.rules.with_name('given')}",
    )  # fmt: skip
    await protect(machine.network, machine.host(), ("cni0",))
    rules = machine.rules.with_name("given").read_text()
    assert "--dport 6443 -j ACCEPT" in rules
    assert "*filter" not in rules


@pytest.mark.parametrize(
    ("services", "fails", "attempts", "warning"),
    [
        (OURS.services, "", 1, ""),
        (OURS.services, "grep -q REJECT {given}", 2, "service addresses are not refused"),
        (OURS.services, "true", 2, "host ports of pods can take the cluster's own"),
        # Without rules that a kernel may not know there is nothing to leave out.
        (None, "true", 1, "host ports of pods can take the cluster's own"),
    ],
)
async def test_rules_are_tried_again_only_without_refusals(
    machine: FakeMachine, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    services: IPv4Network | None, fails: str, attempts: int, warning: str,
) -> None:  # fmt: skip
    def warned() -> list[str]:
        return [record.getMessage() for record in caplog.records]

    tried, given = tmp_path / "tried", tmp_path / "given"
    check = f"if {fails.format(given=given)}; then exit 4; fi" if fails else ""
    machine.program("iptables-restore", f"echo x >> {tried}; cat > {given}; {check}")
    network = replace(machine.network, services=services)
    await protect(network, machine.host(), ("cni0",))
    assert len(tried.read_text().split()) == attempts
    assert warned() == ([warning] if warning else [])
    tried.unlink()
    caplog.clear()
    state = await set_up(network, machine.host(), tmp_path / "cni")
    assert len(tried.read_text().split()) == attempts
    is_complete = warning != "host ports of pods can take the cluster's own"
    assert bool(state.complaint) is not is_complete
    wanted = warning if is_complete else "pods have no egress and no host ports"
    assert warned() == ([wanted] if wanted else [])


async def test_what_protects_ports_is_taken_away(machine: FakeMachine) -> None:
    jump = f"-A PREROUTING -p tcp -j {CHAIN}-PORTS"
    machine.rules.write_text(nat(jump, chains=(f"{CHAIN}-PORTS",)))
    machine.program("iptables-restore", f"cat >> {machine.rules.with_name('given')}; "
                    f": > {machine.rules}")  # fmt: skip
    await unprotect(machine.network, machine.host(is_root=False))
    await unprotect(machine.network, machine.host(firewall=Firewall(is_usable=False)))
    assert machine.rules.read_text()
    await unprotect(machine.network, machine.host())
    rules = machine.rules.with_name("given").read_text()
    assert f"-D PREROUTING -p tcp -j {CHAIN}-PORTS" in rules
    assert f"-X {CHAIN}-PORTS" in rules


async def test_there_may_be_nothing_to_protect_ports_with(machine: FakeMachine) -> None:
    await protect(machine.network, machine.host(is_root=False))
    await protect(machine.network, machine.host(firewall=Firewall(is_usable=False)))
    assert machine.said == ""
    machine.program("iptables-restore", "echo why not >&2; exit 4")
    await protect(machine.network, machine.host())
