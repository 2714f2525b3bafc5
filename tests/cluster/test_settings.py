from __future__ import annotations

import socket
import time
from pathlib import Path

import msgspec
import pytest

from moorage.cluster import settings
from moorage.cluster.reservations import Reservations
from moorage.cluster.settings import (
    Settings,
    SettingsError,
    free_port,
    host_ip,
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
def test_node_names(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None, host: str, wanted: str | None
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    if wanted is not None:
        assert node_name(chosen) == wanted
        return
    with pytest.raises(SettingsError, match="--node-name"):
        node_name(chosen)


def test_a_port_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with Reservations() as reservations, socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert free_port(port, reservations) > port
        monkeypatch.setattr(settings, "_PORT_TRIES", 1)
        with pytest.raises(SettingsError, match=f"no free port from {port} on"):
            free_port(port, reservations)
        monkeypatch.setattr(settings, "_PORT_PATIENCE_S", 0.06)
        with pytest.raises(SettingsError, match=r"in use\); choose another with --api-port"):
            require_port(port, "127.0.0.1", "--api-port", reservations)
    with Reservations() as reservations:
        require_port(port, "127.0.0.1", "--api-port", reservations)


def test_a_port_may_be_given_up_in_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setattr(time, "sleep", lambda _: taken.close())
    with Reservations() as reservations:
        require_port(taken.getsockname()[1], "127.0.0.1", "--api-port", reservations)


def test_a_host_without_a_route_has_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unrouted(socket.socket):
        def connect(self, address: object) -> None:
            raise OSError(101, "Network is unreachable", address)

    monkeypatch.setattr(socket, "socket", Unrouted)
    assert host_ip() == "127.0.0.1"
