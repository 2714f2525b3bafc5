"""The address of this host towards others."""

from __future__ import annotations

import socket
from typing import ClassVar

import pytest

from moorage.linux import address


class Probe:
    """A socket of a machine that reaches what is in `routes`."""

    routes: ClassVar[dict[str, str]] = {}

    def __init__(self, family: int, kind: int) -> None:
        assert kind == socket.SOCK_DGRAM
        self.family = family
        self.name = ""

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def connect(self, target: tuple[str, int]) -> None:
        wanted = socket.AF_INET6 if ":" in target[0] else socket.AF_INET
        assert self.family == wanted
        if target[0] not in self.routes:
            raise OSError("no route")
        self.name = self.routes[target[0]]

    def getsockname(self) -> tuple[str, int]:
        return (self.name, 5)


@pytest.mark.parametrize(
    ("routes", "wanted"),
    [
        ({"192.0.2.1": "10.0.0.1", "2001:db8::1": "fd00::1"}, "10.0.0.1"),
        ({"2001:db8::1": "fd00::1"}, "fd00::1"),
        ({}, "127.0.0.1"),
    ],
)
def test_the_address_towards_others(
    monkeypatch: pytest.MonkeyPatch, routes: dict[str, str], wanted: str
) -> None:
    monkeypatch.setattr(Probe, "routes", routes)
    monkeypatch.setattr(socket, "socket", Probe)
    assert address.own_address() == wanted
