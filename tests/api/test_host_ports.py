"""Host ports that collide with each other or with a cluster's own listeners."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.host_ports import HostPort, Listener, collide, complaint, host_port_of
from moorage.api.pods import Pod

_API = Listener("API server", "127.0.0.1", 6443)
_AGENT = Listener("node agent", "0.0.0.0", 10250)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (("TCP", 80, "10.0.0.1"), ("TCP", 80, "10.0.0.1"), True),
        (("TCP", 80, "10.0.0.1"), ("TCP", 80, "10.0.0.2"), False),
        (("TCP", 80, ""), ("TCP", 80, "10.0.0.2"), True),
        (("TCP", 80, "0.0.0.0"), ("TCP", 80, "10.0.0.2"), True),
        (("TCP", 80, "::"), ("TCP", 80, "10.0.0.2"), True),
        (("TCP", 80, ""), ("UDP", 80, ""), False),
        (("TCP", 80, ""), ("TCP", 81, ""), False),
    ],
)
def test_collisions(left: HostPort, right: HostPort, expected: bool) -> None:
    assert collide(left, right) is expected
    assert collide(right, left) is expected


def _pod(*ports: dict[str, Any], init: dict[str, Any] | None = None) -> Pod:
    quiet = {"name": "quiet", "image": "i", "ports": [{"containerPort": 6443}]}
    containers = [quiet, {"name": "c", "image": "i", "ports": list(ports)}]
    before = [{"name": "init", "image": "i", "ports": [init] if init else []}]
    return msgspec.convert({"spec": {"containers": containers, "initContainers": before}}, Pod)


def _asks(port: int, **more: str) -> dict[str, Any]:
    return {"containerPort": 1, "hostPort": port, **more}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (_pod(), None),
        (_pod(_asks(80)), None),
        (_pod(_asks(6443, protocol="UDP")), None),
        (_pod(_asks(6443, hostIP="10.0.0.1")), None),
        (_pod(_asks(6443)), ("c", "API server (127.0.0.1:6443)")),
        (_pod(_asks(80), _asks(6443, hostIP="127.0.0.1", protocol="TCP")),
         ("c", "API server (127.0.0.1:6443)")),
        (_pod(_asks(6443, hostIP="::ffff:127.0.0.1")), ("c", "API server (127.0.0.1:6443)")),
        (_pod(_asks(6443, hostIP="::ffff:10.0.0.1")), None),
        (_pod(_asks(6443, hostIP="::1")), None),
        (_pod(_asks(6443, hostIP="no address")), None),
        (_pod(_asks(10250, hostIP="10.0.0.1")), ("c", "node agent (0.0.0.0:10250)")),
        (_pod(init=_asks(10250)), ("init", "node agent (0.0.0.0:10250)")),
    ],
)  # fmt: skip
def test_complaints(pod: Pod, expected: tuple[str, str] | None) -> None:
    error = complaint(pod, iter((_API, _AGENT)))
    if expected is None:
        assert error == ""
        return
    container, listener = expected
    port = listener.rpartition(":")[2].rstrip(")")
    assert error == (
        f'hostPort {port} of container "{container}" is used by the {listener}; choose another port'
    )


def test_the_protocol_is_tcp_unless_named() -> None:
    result = [host_port_of(p) for p in _pod(_asks(80), _asks(81, protocol="UDP", hostIP="::1"))
              .spec.containers[1].ports]  # fmt: skip
    assert result == [("TCP", 80, ""), ("UDP", 81, "::1")]
