from __future__ import annotations

import re
import socket
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.api import names
from moorage.api.host_ports import Listener
from moorage.cluster import settings
from moorage.cluster.reservations import Reservations
from moorage.cluster.settings import (
    Settings,
    SettingsError,
    free_port,
    load,
    node_name,
    require_port,
    save,
)

SETTINGS = Settings(
    name="moorage", cluster_id="0a1b2c3d", node_name="n1", api_port=6443, node_port=10250,
    node_ip="192.0.2.7", pod_network="10.244.0.0/24", service_network="10.96.0.0/16",
    bridge="moor-0a1b2c3d",
)  # fmt: skip
API_HERE = Listener("API server", "127.0.0.1", 6443)
API_ON_BRIDGE = Listener("API server", "10.244.0.1", 6443)
AGENT = Listener("agent of node n1", "192.0.2.7", 10250)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    assert load(path) is None
    changed = msgspec.structs.replace(SETTINGS, gates={"RuntimeClass": False}, has_node=False)
    save(path, changed)
    assert load(path) == changed
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"null", b"{}", b"\xff",
        msgspec.json.encode(SETTINGS)[:-20],
        msgspec.json.encode(SETTINGS).replace(b"10.244.0.0/24", b"10.244.0.0/99"),
        msgspec.json.encode(SETTINGS).replace(b"6443", b'"6443"'),
    ],
)  # fmt: skip
def test_damaged_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cluster.json"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"cluster\.json is damaged .*--data-dir"):
        load(path)


def test_addresses() -> None:
    assert (SETTINGS.gateway, SETTINGS.service_ip) == ("10.244.0.1", "10.96.0.1")
    assert SETTINGS.api_addresses == ("127.0.0.1", "10.244.0.1")
    with_cri = msgspec.structs.replace(SETTINGS, cri="unix:///run/x.sock")
    assert with_cri.api_addresses == ("127.0.0.1", "192.0.2.7")
    assert msgspec.structs.replace(SETTINGS, has_node=False).api_addresses == ("127.0.0.1",)
    kubelet = msgspec.structs.replace(SETTINGS, has_node=False, without=("node",))
    assert kubelet.api_addresses == ("127.0.0.1", "192.0.2.7")
    assert kubelet.pod_facing_address == "192.0.2.7"
    without_route = msgspec.structs.replace(with_cri, node_ip="127.0.0.1")
    assert without_route.api_addresses == ("127.0.0.1",)


@pytest.mark.parametrize(
    ("chosen", "host", "wanted"),
    [
        (None, "Web-1.Example", "web-1.example"),
        ("n1", "Bad_Host", "n1"),
        (None, "Bad_Host", None),
        ("Bad_Name", "host", None),
        ("", "host", None),
        ("a" * 254, "host", None),
    ],
)
def test_node_names(chosen: str | None, host: str, wanted: str | None) -> None:
    if wanted is not None:
        assert node_name(chosen, lambda: host) == wanted
        return
    with pytest.raises(SettingsError, match="--node-name"):
        node_name(chosen, lambda: host)


def test_a_port_that_is_taken_is_passed_over() -> None:
    with Reservations() as reservations, socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert free_port(port, reservations) > port
        with pytest.raises(SettingsError, match=f"no free port from {port} on"):
            free_port(port, reservations, tries=1)
        with pytest.raises(SettingsError, match=r"in use\); choose another with --api-port"):
            require_port(port, "127.0.0.1", "--api-port", reservations, patience_s=0.06)
    with Reservations() as reservations:
        require_port(port, "127.0.0.1", "--api-port", reservations)


def test_a_port_may_be_given_up_in_a_moment() -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    threading.Timer(0.05, taken.close).start()
    with Reservations() as reservations:
        require_port(taken.getsockname()[1], "127.0.0.1", "--api-port", reservations)


@pytest.mark.parametrize(
    ("changes", "pod_facing", "listeners"),
    [
        ({}, "10.244.0.1", [API_HERE, API_ON_BRIDGE, AGENT]),
        ({"cri": "unix:///x.sock"}, "192.0.2.7",
         [API_HERE, Listener("API server", "192.0.2.7", 6443), AGENT]),
        ({"has_node": False}, "10.244.0.1", [API_HERE]),
    ],
)  # fmt: skip
def test_what_a_cluster_listens_on(
    changes: dict[str, Any], pod_facing: str, listeners: list[Listener]
) -> None:
    changed = msgspec.structs.replace(SETTINGS, **changes)
    assert changed.pod_facing_address == pod_facing
    assert list(changed.listeners) == listeners
    assert changed.server == "https://127.0.0.1:6443"


def test_settings_of_an_earlier_version_have_the_defaults() -> None:
    saved = msgspec.json.decode(msgspec.json.encode(SETTINGS))
    assert saved.keys() == {
        "name", "cluster_id", "node_name", "api_port", "node_port", "node_ip", "pod_network",
        "service_network", "bridge",
    }  # fmt: skip
    loaded = msgspec.convert(saved, Settings)
    rest = {name: getattr(loaded, name) for name in loaded.__struct_fields__ if name not in saved}
    assert rest == {
        "controllers_port": 0, "scheduler_port": 0,
        "has_node": True, "without": (), "cri": "", "audit_policy": "",
        "admission_configuration": "", "kubelet_configuration": "", "gates": {},
        "filters_by_handler": True,
        "registry_mirrors": {}, "log_level": "info", "seccomp_default": False,
        "pod_pids_limit": 4096, "image_verification": "NeverVerifyPreloadedImages",
        "image_allowlist": (), "image_limit_bytes": 128 * 1024**3, "default_classes": True,
    }  # fmt: skip
    assert (settings.DEFAULT_API_PORT, settings.DEFAULT_NODE_PORT) == (6443, 10250)


@pytest.mark.parametrize(
    ("gates", "is_enabled"),
    [({}, True), ({"A": False}, False), ({"A": True}, True), ({"B": False}, True)],
)
def test_gates_are_enabled_unless_they_are_disabled(
    gates: dict[str, bool], is_enabled: bool
) -> None:
    assert msgspec.structs.replace(SETTINGS, gates=gates).is_enabled("A") is is_enabled


def test_cluster_ids_are_eight_hex_digits() -> None:
    ids = {settings.new_cluster_id() for _ in range(20)}
    assert len(ids) == 20
    assert all(re.fullmatch("[0-9a-f]{8}", cluster_id) for cluster_id in ids)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (None, "the host name 'bad_host' is not a node name ({}); give one with --node-name"),
        ("Bad_Name", "--node-name 'Bad_Name' is not a node name ({})"),
    ],
)
def test_invalid_node_name_is_named_with_its_source(chosen: str | None, message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        node_name(chosen, lambda: "Bad_Host")
    assert str(refused.value) == message.format(names.dns_subdomain_errors("Bad_Name")[0])


def test_reserved_port_is_named_with_what_holds_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with Reservations() as others, Reservations() as ours:
        assert others.take(f"port 127.0.0.1:{port}")
        with pytest.raises(SettingsError) as refused:
            require_port(port, "127.0.0.1", "--api-port", ours, patience_s=0)
    assert str(refused.value) == (
        f"port {port} of 127.0.0.1 cannot be used (another cluster is starting or running with it "
        f"(`ss -xap | grep '@moorage/port 127.0.0.1:{port}'` shows the process that holds it)); "
        "choose another with --api-port"
    )


def test_port_that_cannot_be_used_is_not_reserved() -> None:
    with Reservations() as ours, socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(SettingsError):
            require_port(port, "127.0.0.1", "--api-port", ours, patience_s=0)
        assert ours.descriptors == ()


def test_a_port_whose_last_connection_has_just_ended_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        # The side that closes first keeps the port in TIME_WAIT.
        accepted.close()
        assert client.recv(1) == b""
        client.close()
    with Reservations() as reservations:
        require_port(port, "127.0.0.1", "--api-port", reservations)
