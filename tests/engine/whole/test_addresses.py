"""Addresses of pods that other pods had before."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from ipaddress import IPv4Network
from itertools import islice
from pathlib import Path

import pytest

from tests.engine.whole.engines import Caller, RunningEngine, an_engine


@pytest.fixture(scope="module")
def engine(archive: Path) -> Iterator[RunningEngine]:
    """An engine that makes no network in advance, so that a test knows when one is made."""
    with an_engine(archive, spares=0) as engine:
        yield engine


async def test_the_host_reaches_a_pod_at_an_address_that_it_knows_from_another_pod(
    caller: Caller, engine: RunningEngine
) -> None:
    first = await caller.run_pod("runc", name="first")
    subnet = IPv4Network(f"{(await caller.pod_status(first)).network.ip}/24", strict=False)
    former = "02:00:00:00:00:01"
    _run(
        ["ip", "-batch", "-"],
        "".join(
            f"neigh replace {address} lladdr {former} dev {engine.mark} nud stale\n"
            for address in islice(subnet.hosts(), 2, 20)
        ),
    )
    pod = await caller.run_pod("runc", name="second")
    main = await caller.run(pod, "sleep", "600")
    address = (await caller.pod_status(pod)).network.ip
    mac = (await caller.exec(main, "cat", "/sys/class/net/eth0/address")).stdout.decode().strip()
    neighbours = json.loads(_run(["ip", "-json", "neigh", "show", address, "dev", engine.mark]))
    assert [neighbour["lladdr"] for neighbour in neighbours] == [mac]


def _run(command: list[str], stdin: str = "") -> str:
    return subprocess.run(
        command, input=stdin, check=True, stdout=subprocess.PIPE, text=True
    ).stdout  # fmt: skip
