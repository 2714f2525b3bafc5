"""Network configurations: which file counts, what a plugin is given, what its answer means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.engine.networks import Conflist, ConflistError, read_conflist
from moorage.engine.networks.conflist import addresses_of, parse_conflist, plugin_input

FILE = Path("/etc/cni/net.d/10-test.conflist")
BRIDGE = {"type": "bridge", "bridge": "b0", "capabilities": {"ips": True}}
PORTMAP = {"type": "portmap", "capabilities": {"portMappings": True, "other": False}}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


def conflist(*plugins: dict[str, Any], **fields: Any) -> Conflist:
    document = {"name": "n", "cniVersion": "1.0.0", "plugins": list(plugins), **fields}
    return parse_conflist(json.dumps(document).encode(), FILE)


def test_the_first_file_by_name_counts(tmp_path: Path) -> None:
    for name in ("20-b.conflist", "10-a.conf", "00-notes.txt"):
        (tmp_path / name).write_text(json.dumps({"name": name, "type": "bridge"}))
    assert read_conflist(tmp_path).name == "10-a.conf"


def test_a_directory_that_is_empty_or_not_there_has_no_network(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "absent"):
        with pytest.raises(ConflistError, match=str(directory)):
            read_conflist(directory)


def test_a_single_plugin_is_a_list_of_one() -> None:
    network = parse_conflist(b'{"name": "n", "type": "ptp"}', FILE)
    assert [plugin["type"] for plugin in network.plugins] == ["ptp"]
    assert network.version == "0.2.0"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"{}",
        b'{"name": 1, "type": "bridge"}',
        b'{"name": "n"}',
        b'{"name": "n", "plugins": []}',
        b'{"name": "n", "plugins": {"type": "bridge"}}',
        b'{"name": "n", "plugins": [{"type": "bridge"}, {}]}',
        b'{"name": "n", "plugins": [{"type": ""}]}',
        b'{"name": "n", "plugins": ["bridge"]}',
    ],
)
def test_invalid_configuration_is_rejected_with_its_file(text: bytes) -> None:
    with pytest.raises(ConflistError, match=r"10-test\.conflist"):
        parse_conflist(text, FILE)


@given(json_values)
def test_any_json_is_a_configuration_or_refused(value: Any) -> None:
    try:
        network = parse_conflist(json.dumps(value).encode(), FILE)
    except ConflistError:
        return
    assert network.plugins


@pytest.mark.parametrize(
    ("kinds", "is_pod_independent"),
    [
        (("bridge", "portmap"), True),
        (("ptp", "firewall", "tuning"), True),
        (("bridge", "bandwidth"), True),
        (("calico",), False),
    ],
)
def test_a_network_is_made_in_advance_where_no_plugin_looks_at_the_pod(
    kinds: tuple[str, ...], is_pod_independent: bool
) -> None:
    assert conflist(*({"type": kind} for kind in kinds)).is_pod_independent == is_pod_independent


def test_a_plugin_gets_its_configuration_and_only_what_it_asked_for() -> None:
    network = conflist(BRIDGE, PORTMAP)
    arguments = {"portMappings": [{"hostPort": 80}], "other": 1, "bandwidth": {}}
    first = json.loads(plugin_input(network, network.plugins[0], arguments, None))
    assert first == {"type": "bridge", "bridge": "b0", "name": "n", "cniVersion": "1.0.0"}
    second = json.loads(plugin_input(network, network.plugins[1], arguments, {"ips": []}))
    assert second == {
        "type": "portmap",
        "name": "n",
        "cniVersion": "1.0.0",
        "runtimeConfig": {"portMappings": [{"hostPort": 80}]},
        "prevResult": {"ips": []},
    }
    # A saved configuration must be the one that was read.
    assert network.plugins[1] == PORTMAP


def test_addresses_are_the_pods_own_with_ipv4_first() -> None:
    result = {
        "interfaces": [
            {"name": "b0"},
            {"name": "eth0", "sandbox": "/n"},
            {"name": "eth1", "sandbox": "/n"},
        ],
        "ips": [
            {"address": "10.0.0.1/24", "interface": 0},
            {"address": "fd00::2/64", "interface": 1},
            {"address": "10.0.0.2/24", "interface": 1},
            {"address": "10.0.0.3/24", "interface": 2},
            {"address": "10.0.0.4/24"},
        ],
    }
    assert addresses_of(result, "eth0") == ("10.0.0.2", "10.0.0.4", "fd00::2")


def test_addresses_are_read_from_answers_of_old_versions() -> None:
    old = {"ip6": {"ip": "fd00::2/64"}, "ip4": {"ip": "10.0.0.2/24", "gateway": "10.0.0.1"}}
    assert addresses_of(old, "eth0") == ("10.0.0.2", "fd00::2")


@given(st.dictionaries(st.sampled_from(["ips", "interfaces", "ip4", "x"]), json_values))
def test_any_answer_has_addresses_or_none(result: dict[str, Any]) -> None:
    assert all(isinstance(address, str) and address for address in addresses_of(result, "eth0"))


def test_a_configuration_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    file = tmp_path / "10-a.conf"
    file.write_text('{"name": "a", "type": "bridge"}')
    file.chmod(0o666)
    with pytest.raises(ConflistError, match=f"refusing .* {file}: .*chmod go-w {file}"):
        read_conflist(tmp_path)


def test_a_configuration_is_read_whole() -> None:
    assert conflist(BRIDGE, PORTMAP, cniVersion="1.1.0") == Conflist(
        "n", "1.1.0", (BRIDGE, PORTMAP), FILE
    )


@pytest.mark.parametrize(
    ("name", "is_read"),
    [("a.conf", True), ("a.conflist", True), ("a.json", True), ("a.toml", False), ("conf", False)],
)
def test_configurations_are_known_by_their_suffix(tmp_path: Path, name: str, is_read: bool) -> None:
    (tmp_path / name).write_text('{"name": "a", "type": "bridge"}')
    if is_read:
        assert read_conflist(tmp_path).file == tmp_path / name
        return
    with pytest.raises(ConflistError, match="no network configuration in"):
        read_conflist(tmp_path)


@pytest.mark.parametrize("kind", ["bridge", "ptp", "loopback", "portmap", "firewall", "tuning"])
def test_reference_plugins_do_not_depend_on_the_pod(kind: str) -> None:
    assert conflist({"type": kind}).is_pod_independent
    assert not conflist({"type": kind}, {"type": "other"}).is_pod_independent


@pytest.mark.parametrize("capabilities", [None, [], ["ips"], "ips", {}, {"ips": False}])
def test_a_plugin_without_the_capability_gets_no_argument(capabilities: Any) -> None:
    network = conflist({"type": "x", "capabilities": capabilities})
    document = json.loads(plugin_input(network, network.plugins[0], {"ips": ["10.0.0.9"]}, None))
    assert document == {"type": "x", "name": "n", "cniVersion": "1.0.0"}


@pytest.mark.parametrize(
    ("interface", "device", "is_the_pods"),
    [
        (None, {"name": "b0"}, True),
        (-1, {"name": "b0"}, True),
        (1, {"name": "b0"}, True),
        (0, {"name": "b0"}, False),
        (0, {"name": "eth0"}, False),
        (0, {"name": "b0", "sandbox": "/n"}, False),
        (0, {"name": "eth0", "sandbox": "/n"}, True),
    ],
)
def test_an_address_of_another_interface_is_not_the_pods(
    interface: int | None, device: dict[str, str], is_the_pods: bool
) -> None:
    entry = {"address": "10.0.0.2/24", "interface": interface}
    addresses = addresses_of({"interfaces": [device], "ips": [entry]}, "eth0")
    assert addresses == (("10.0.0.2",) if is_the_pods else ())
