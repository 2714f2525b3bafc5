from __future__ import annotations

import pytest

from moorage.node.probes.checks import resolve_port
from tests.node.objects import a_container

CONTAINER = a_container(ports=[{"name": "web", "containerPort": 8080}])


@pytest.mark.parametrize(("port", "wanted"), [(80, 80), ("81", 81), ("web", 8080)])
def test_by_number_or_name(port: int | str, wanted: int) -> None:
    assert resolve_port(port, CONTAINER) == wanted


@pytest.mark.parametrize(
    ("port", "complaint"),
    [
        ("gone", "couldn't find port: 'gone' on container app"),
        (0, "invalid port number: 0"),
        ("70000", "invalid port number: 70000"),
    ],
)
def test_invalid_ports_are_rejected(port: int | str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        resolve_port(port, CONTAINER)
