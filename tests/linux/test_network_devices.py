from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.linux.network_devices import (
    NetworkDevice,
    Traffic,
    parse_network_devices,
    read_network_devices,
)
from tests.descriptors import open_descriptors

HEAD = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
"""
LOOPBACK = "    lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n"


def test_devices_but_the_loopback() -> None:
    text = f"{HEAD}{LOOPBACK}  eth0: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\nveth:1:1 0 0 0 0 0\n"
    assert parse_network_devices(text) == (
        NetworkDevice("eth0", Traffic(1, 2, 3, 4), Traffic(5, 6, 7, 8)),
    )


def test_a_large_number_may_touch_the_name() -> None:
    (device,) = parse_network_devices("eth0:123 1 0 0 0 0 0 0 5 6 7 8 0 0 0 0")
    assert (device.name, device.received.bytes) == ("eth0", 123)


@given(st.text())
def test_any_text_is_parsed_without_error(text: str) -> None:
    assert isinstance(parse_network_devices(text), tuple)


@pytest.fixture
def namespace() -> Iterator[Path]:
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("making network namespaces needs root and ip")
    name = f"test-{secrets.token_hex(4)}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "add", "eth7", "type", "veth"], check=False)
        yield Path("/run/netns") / name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def test_devices_are_read_in_their_namespace_and_the_thread_returns(namespace: Path) -> None:
    before = os.readlink("/proc/thread-self/ns/net")
    descriptors = open_descriptors()
    # The second is no namespace, which setns(2) refuses.
    absent = [namespace.parent / "gone", Path(__file__)]
    devices = read_network_devices([*absent, namespace])
    assert list(devices) == [namespace]
    assert open_descriptors() == descriptors
    if devices[namespace]:
        assert "eth7" in {device.name for device in devices[namespace]}
    assert os.readlink("/proc/thread-self/ns/net") == before
