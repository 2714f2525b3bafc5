"""Scripts for iptables-restore, from what iptables-save printed; then on a namespace's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.host_ports import Listener
from moorage.cluster.network.rules import (
    chain_name,
    guard_script,
    has_service_proxy,
    mark_chain_name,
    missing_rules,
    removal_script,
    setup_script,
)
from tests.cluster.network.networks import OURS, THEIRS

CHAIN = "MOORAGE-0a1b2c3d"
OPEN_FILTER = """\
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
COMMIT
"""
CLOSED_FILTER = OPEN_FILTER.replace("FORWARD ACCEPT", "FORWARD DROP")
FILTER_WITH_RULE = OPEN_FILTER.replace("COMMIT", "-A FORWARD -j DOCKER\nCOMMIT")
HOST_PORT = (
    "-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "
    '"dnat name: \\"{name}\\" id: \\"abc\\"" -m multiport --dports 8080 -j {chain}'
)


def nat(*rules: str, chains: tuple[str, ...] = ()) -> str:
    named = (f":{chain} - [0:0]" for chain in chains)
    return "\n".join(("*nat", ":POSTROUTING ACCEPT [0:0]", *named, *rules, "COMMIT")) + "\n"


def test_names_are_short_enough_for_the_kernel() -> None:
    assert (chain_name(OURS), mark_chain_name(OURS)) == (CHAIN, f"{CHAIN}-MARK")
    assert len(mark_chain_name(OURS)) <= 28


def test_an_open_host_needs_masquerading_only() -> None:
    script = setup_script(replace(OURS, services=None), OPEN_FILTER)
    assert script.startswith("*nat\n")
    assert "*filter" not in script
    assert f"-I POSTROUTING 1 -j {CHAIN}\n" in script
    assert "-s 198.51.100.0/24 -d 198.51.100.0/24 -j RETURN" in script
    assert script.endswith("COMMIT\n")


@pytest.mark.parametrize("saved", [CLOSED_FILTER, FILTER_WITH_RULE])
def test_a_host_that_filters_lets_pods_through(saved: str) -> None:
    script = setup_script(OURS, saved)
    assert f"-A {CHAIN} -s 198.51.100.0/24 -j ACCEPT" in script
    assert f"-I FORWARD 1 -j {CHAIN}" in script


@pytest.mark.parametrize(
    "saved",
    [
        OPEN_FILTER.replace("INPUT ACCEPT", "INPUT DROP"),
        OPEN_FILTER.replace("COMMIT", "-A INPUT -j ufw-before-input\nCOMMIT"),
    ],
)
def test_a_host_that_filters_lets_pods_reach_the_dns_and_the_api(saved: str) -> None:
    ours = replace(OURS, listeners=(Listener("API server", str(OURS.gateway), 6443),))
    script = setup_script(ours, saved)
    source = f"-A {CHAIN}-IN -s 198.51.100.0/24"
    assert f"{source} -d 198.51.100.2/32 -p udp -m udp --dport 53 -j ACCEPT" in script
    assert f"{source} -d 198.51.100.2/32 -p tcp -m tcp --dport 53 -j ACCEPT" in script
    assert f"{source} -d 198.51.100.1/32 -p tcp -m tcp --dport 6443 -j ACCEPT" in script
    assert f"-I INPUT 1 -j {CHAIN}-IN" in script
    again = saved.replace("COMMIT", f":{CHAIN}-IN - [0:0]\n-A INPUT -j {CHAIN}-IN\nCOMMIT")
    assert "-I INPUT" not in setup_script(ours, again)
    assert f"-D INPUT -j {CHAIN}-IN" in removal_script(ours, again)


def test_what_a_reloaded_firewall_removed_is_known() -> None:
    script = setup_script(OURS, OPEN_FILTER + nat())
    rules = [line for line in script.splitlines() if line.startswith("-A")]
    jumps = [line.replace("-I ", "-A ").replace(" 1 ", " ", 1) for line in script.splitlines()
             if line.startswith("-I")]  # fmt: skip
    chains = {line.split()[1] for line in rules}
    open_chains = ":INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n"
    saved = "\n".join(
        f"{table}\n{parents}" + "".join(f":{name} - [0:0]\n" for name in sorted(chains))
        + "\n".join((*rules, *jumps, "COMMIT"))
        for table, parents in (("*nat", ""), ("*filter", open_chains))
    )  # fmt: skip
    assert not missing_rules(setup_script(OURS, saved), saved)
    reloaded = saved.replace(f"-A POSTROUTING -j {CHAIN}\n", "")
    assert missing_rules(setup_script(OURS, reloaded), reloaded) == {f"-I POSTROUTING 1 -j {CHAIN}"}
    assert missing_rules(setup_script(OURS, OPEN_FILTER), OPEN_FILTER) >= set(rules)


def test_our_own_jump_is_no_filtering() -> None:
    """Else a second start would accept what the first left to the host's policy."""
    once = OPEN_FILTER.replace("COMMIT", f"-A FORWARD -j {CHAIN}\nCOMMIT")
    assert f"-A {CHAIN} -s 198.51.100.0/24 -j ACCEPT" not in setup_script(OURS, once)


def test_service_addresses_are_refused_before_pods_pass() -> None:
    lines = setup_script(OURS, CLOSED_FILTER).splitlines()
    refused = f"-A {CHAIN} -s 198.51.100.0/24 -d 10.96.0.0/16 -p tcp -j REJECT"
    refused += " --reject-with tcp-reset"
    assert lines.index(refused) < lines.index(f"-A {CHAIN} -s 198.51.100.0/24 -j ACCEPT")
    assert f"-I OUTPUT 1 -j {CHAIN}-OUT" in lines


def test_the_hosts_own_way_into_the_service_network_can_stay() -> None:
    script = setup_script(OURS, OPEN_FILTER, refuses_for_host=False)
    assert f"-I FORWARD 1 -j {CHAIN}" in script
    assert "OUTPUT 1 -j" not in script.partition("*filter")[2]
    # One that was refused at an earlier start is not any more.
    again = setup_script(
        OURS, OPEN_FILTER.replace("COMMIT", f":{CHAIN}-OUT - [0:0]\nCOMMIT"),
        refuses_for_host=False,
    )  # fmt: skip
    assert f":{CHAIN}-OUT - [0:0]" in again
    assert f"-A {CHAIN}-OUT" not in again


GUARD = f"-A PREROUTING -j {CHAIN}-PORTS"
OTHER_GUARD = "-A PREROUTING -j MOORAGE-deadbeef-PORTS"
PORTMAP = "-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT"


@pytest.mark.parametrize(
    ("present", "is_moved"),
    [
        ((), True),
        ((PORTMAP,), True),
        ((PORTMAP, GUARD), True),
        ((GUARD, PORTMAP), False),
        ((OTHER_GUARD, GUARD, PORTMAP), False),
        ((GUARD, PORTMAP, GUARD), True),
    ],
    ids=["none", "absent", "behind", "first", "behind another's", "twice"],
)
def test_the_clusters_ports_come_before_any_host_port(
    present: tuple[str, ...], *, is_moved: bool
) -> None:
    for script in (setup_script(OURS, nat(*present)), guard_script(OURS, nat(*present))):
        lines = script.splitlines()
        assert f"-A {CHAIN}-PORTS -d 127.0.0.1/32 -p tcp -m tcp --dport 6443 -j ACCEPT" in lines
        assert (f"-I PREROUTING 1 -j {CHAIN}-PORTS" in lines) is is_moved
        removed = lines.count(f"-D PREROUTING -j {CHAIN}-PORTS")
        assert removed == (present.count(GUARD) if is_moved else 0)


def test_a_guard_refuses_services_to_the_pods_of_another_engine() -> None:
    script = guard_script(OURS, OPEN_FILTER, interfaces=("cni0", "cni1"), refuses_services=True)
    lines = script.splitlines()
    for source in (f"{CHAIN} -i cni0", f"{CHAIN} -i cni1", f"{CHAIN}-OUT"):
        assert f"-A {source} -d 10.96.0.0/16 -p tcp -j REJECT --reject-with tcp-reset" in lines
    assert f"-I FORWARD 1 -j {CHAIN}" in lines
    # What an earlier start refused is not any more.
    made = OPEN_FILTER.replace(
        "COMMIT", f":{CHAIN} - [0:0]\n-A FORWARD -j {CHAIN}\n:{CHAIN}-OUT - [0:0]\nCOMMIT"
    )
    again = guard_script(OURS, made, interfaces=("cni0",)).partition("*filter")[2]
    assert (
        again.split()
        == f":{CHAIN} - [0:0] :{CHAIN}-OUT - [0:0] -I OUTPUT 1 -j {CHAIN}-OUT COMMIT".split()
    )
    assert "*filter" not in guard_script(OURS, OPEN_FILTER, interfaces=("cni0",))


@pytest.mark.parametrize("chain", ["KUBE-SERVICES", "KUBE-SVC-X", ""])
def test_a_service_proxy_is_known_by_its_chain(chain: str) -> None:
    saved = OPEN_FILTER + nat(chains=(chain,) if chain else ())
    assert has_service_proxy(saved) is (chain == "KUBE-SERVICES")


def test_a_jump_that_is_there_is_not_made_again() -> None:
    saved = nat(f"-A POSTROUTING -j {CHAIN}", chains=(CHAIN,))
    assert "-I POSTROUTING" not in setup_script(OURS, saved)


def test_removal_takes_what_is_ours_and_nothing_else() -> None:
    saved = nat(
        "-A POSTROUTING -j DOCKER-POST",
        f"-A POSTROUTING -j {CHAIN}",
        f"-A POSTROUTING -j {chain_name(THEIRS)}",
        HOST_PORT.format(name=OURS.name, chain="CNI-DN-ours"),
        HOST_PORT.format(name=THEIRS.name, chain="CNI-DN-theirs"),
        chains=(CHAIN, f"{CHAIN}-MARK", chain_name(THEIRS), "DOCKER-POST", "CNI-HOSTPORT-DNAT",
                "CNI-DN-ours", "CNI-DN-theirs"),
    )  # fmt: skip
    script = removal_script(OURS, saved)
    assert f"-D POSTROUTING -j {CHAIN}\n" in script
    assert "-X CNI-DN-ours\n" in script
    for other in ("theirs", THEIRS.cluster_id, "DOCKER", "-X CNI-HOSTPORT-DNAT"):
        assert other not in script


def test_the_shared_chain_goes_with_the_last_host_port() -> None:
    saved = nat(
        "-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
        HOST_PORT.format(name=OURS.name, chain="CNI-DN-ours"),
        chains=("PREROUTING", "CNI-HOSTPORT-DNAT", "CNI-DN-ours"),
    )
    script = removal_script(OURS, saved)
    assert "-D PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n" in script
    assert "-X CNI-HOSTPORT-DNAT\n" in script


def test_a_comment_that_looks_like_a_jump_is_a_comment() -> None:
    rule = f'-A INPUT -m comment --comment "once -j {CHAIN} \\" here" -j ACCEPT'
    saved = OPEN_FILTER.replace("COMMIT", f":{CHAIN} - [0:0]\n{rule}\nCOMMIT")
    assert "-D INPUT" not in removal_script(OURS, saved)


@pytest.mark.parametrize("saved", ["", OPEN_FILTER, nat(), "*nat\n:POSTROUTING ACCEPT [0:0]\n"])
def test_where_nothing_is_ours_there_is_nothing_to_do(saved: str) -> None:
    assert removal_script(OURS, saved) == ""


@given(st.text(st.sampled_from('*:-AIj \n"\\abcMOORAGE-0COMMIT'), max_size=200))
def test_no_saved_text_breaks_either(saved: str) -> None:
    setup_script(OURS, saved)
    removal_script(OURS, saved)


@pytest.fixture
def namespace() -> Iterator[str]:
    """A network namespace of its own, with no rules."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "iptables-restore"))):
        pytest.skip("needs root, ip and iptables")
    name = f"moor-test-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        if inside(name, "iptables", "-t", "nat", "-S").returncode != 0:
            pytest.skip("iptables cannot be used here")
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def inside(name: str, *argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = ["ip", "netns", "exec", name, *argv]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


def saved_in(name: str) -> str:
    return inside(name, "iptables-save").stdout


def restore(name: str, script: str) -> None:
    done = inside(name, "iptables-restore", "--noflush", stdin=script)
    assert done.returncode == 0, f"{script}\n{done.stderr}"


def rules(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("-A")]


def test_the_kernel_takes_the_scripts_and_is_as_before(namespace: str) -> None:
    restore(namespace, "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n")
    for network in (OURS, THEIRS):
        restore(namespace, setup_script(network, saved_in(namespace)))
    with_both = rules(saved_in(namespace))
    # A second start changes nothing.
    restore(namespace, setup_script(OURS, saved_in(namespace)))
    assert sorted(rules(saved_in(namespace))) == sorted(with_both)
    restore(namespace, removal_script(OURS, saved_in(namespace)))
    left = saved_in(namespace)
    assert CHAIN not in left
    assert chain_name(THEIRS) in left
    restore(namespace, removal_script(THEIRS, left))
    assert rules(saved_in(namespace)) == []
    assert removal_script(THEIRS, saved_in(namespace)) == ""


def test_host_port_53_of_a_pod_leaves_the_dns_alone() -> None:
    lines = setup_script(OURS, "").splitlines()
    for protocol in ("tcp", "udp"):
        accept = f"-d 198.51.100.2/32 -p {protocol} -m {protocol} --dport 53 -j ACCEPT"
        assert f"-A {CHAIN}-PORTS {accept}" in lines
