"""The bridge of another engine's pods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moorage.cluster.network import pod_bridges

BRIDGE = {"type": "bridge", "bridge": "br-pods"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, ()),
        ({"10.conflist": {"plugins": [BRIDGE, {"type": "portmap"}]}}, ("br-pods",)),
        ({"10.conf": {"type": "bridge"}}, ("cni0",)),
        ({"10.json": BRIDGE, "20.conf": {"type": "bridge"}}, ("br-pods",)),
        ({"10.conf": {"type": "bridge", "bridge": "A.z_0-123456789"}}, ("A.z_0-123456789",)),
        ({"10.conf": {"type": "bridge", "bridge": "A.z_0-1234567890"}}, ()),
        ({"10.conf": {"type": "bridge", "bridge": ""}}, ()),
        ({"10.conflist": {"plugins": [BRIDGE, {"type": "bridge"}]}}, ("br-pods", "cni0")),
        # The first file is in force, and no other suffix counts.
        ({"00.txt": BRIDGE, "10.conf": {"type": "ptp"}, "20.conf": BRIDGE}, ()),
        ({"10.conf": {"type": "bridge", "bridge": "a -j ACCEPT"}}, ()),
        ({"10.conf": {"type": "bridge", "bridge": ["x"]}}, ()),
        ({"10.conf": [BRIDGE]}, ()),
        ({"10.conflist": {"plugins": {"type": "bridge"}}}, ()),
        ({"10.conflist": {"plugins": ["bridge"]}}, ()),
        ({"10.conf": "broken"}, ()),
    ],
    ids=repr,
)
def test_the_bridge_is_that_of_the_network_in_force(
    tmp_path: Path, files: dict[str, Any], expected: tuple[str, ...]
) -> None:
    for name, content in files.items():
        text = content if content == "broken" else json.dumps(content)
        (tmp_path / name).write_text(text)
    assert pod_bridges(tmp_path) == expected
    assert pod_bridges(tmp_path / "none") == ()
