"""Directories of released volumes are removed, whatever is in them; all others stay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.api.persistent_volumes import PersistentVolume
from moorage.node.paths import NodePaths
from moorage.node.volumes.claimed import PersistentMounts
from moorage.node.volumes.reclaiming import Fate, VolumeReclaimer, fate_of
from moorage.wire.client.recorder import EventRecorder
from moorage.wire.client.resources import PERSISTENT_VOLUMES
from tests.api.claims.objects import a_volume, claim_json
from tests.clocks import FakeClock, settle
from tests.controllers.memory import MemoryClient
from tests.node.objects import UID
from tests.node.volumes.mounts import FakeMounter

HANDLE = "6a1f0b7e-9f0a-4c52-8a55-0e3f9a2b1c77"
FINALIZER = "runtime.moorage.dev/local-path"
OURS = {"driver": "local-path.runtime.moorage.dev", "volumeHandle": HANDLE}


def released(*, is_leaving: bool = True, **more: Any) -> PersistentVolume:
    usual: dict[str, Any] = {
        "claim": claim_json(), "phase": "Released", "policy": "Delete", "hostPath": None,
        "csi": OURS, "finalizers": ("kubernetes.io/pv-protection", FINALIZER),
        "labels": {"runtime.moorage.dev/node": "n1"},
    }  # fmt: skip
    volume = a_volume(**{**usual, **more})
    if not is_leaving:
        return volume
    meta = msgspec.structs.replace(volume.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    return msgspec.structs.replace(volume, metadata=meta)


@pytest.mark.parametrize(
    ("volume", "fate"),
    [
        (released(), Fate.REMOVE),
        (released(phase="Failed"), Fate.REMOVE),
        (released(claim=None, phase="Available"), Fate.REMOVE),
        (released(is_leaving=False), Fate.KEEP),
        (released(phase="Bound"), Fate.KEEP),
        (released(phase="Pending"), Fate.KEEP),
        (released(phase=""), Fate.KEEP),
        (released(finalizers=()), Fate.KEEP),
        (released(policy="Retain"), Fate.LET_GO),
        (released(csi={"driver": "other.example.com", "volumeHandle": HANDLE}), Fate.LET_GO),
    ],
)
def test_fates(volume: PersistentVolume, fate: Fate) -> None:
    assert fate_of(volume, []) is fate


def test_a_directory_that_another_volume_has_too_stays() -> None:
    other = released(name="restored", is_leaving=False, phase="Bound")
    assert fate_of(released(), [other]) is Fate.LET_GO


@pytest.mark.parametrize(
    "more", [{"readOnly": True}, {"fsType": "ext4"}, {"volumeAttributes": {"a": "b"}}]
)
def test_a_directory_belongs_to_its_handle_whatever_else_a_source_says(more: Any) -> None:
    other = released(name="restored", is_leaving=False, phase="Bound", csi={**OURS, **more})
    assert fate_of(released(), [other]) is Fate.LET_GO


def test_a_handle_of_another_driver_is_no_directory_of_ours() -> None:
    theirs = {"driver": "other.example.com", "volumeHandle": HANDLE}
    other = released(name="other", is_leaving=False, phase="Bound", csi=theirs)
    assert fate_of(released(), [other]) is Fate.REMOVE


def test_a_handle_that_leads_elsewhere_names_no_directory() -> None:
    with pytest.raises(ValueError, match="is not the uid of a claim"):
        fate_of(released(csi=OURS | {"volumeHandle": "../../etc"}), [])


class Node:
    def __init__(self, root: Path) -> None:
        self.clock = FakeClock()
        self.api = MemoryClient(self.clock)
        client: Any = self.api
        self.paths = NodePaths(root / "node", root / "logs")
        self.mounter = FakeMounter()
        self.recorder = EventRecorder(client, "kubelet", clock=self.clock)
        mounts = PersistentMounts(self.mounter, self.paths)
        self.reclaimer = VolumeReclaimer(client, self.recorder, mounts, self.clock, node_name="n1")
        self.directory = self.paths.local_volume(HANDLE)
        self.directory.mkdir(parents=True)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [
            asyncio.create_task(self.reclaimer.run()),
            asyncio.create_task(self.recorder.run()),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def until_gone(self) -> None:
        async with asyncio.timeout(10):
            while FINALIZER in self.finalizers:
                await settle(1)

    @property
    def finalizers(self) -> list[str]:
        wire = self.api.find(PERSISTENT_VOLUMES, "pv")
        return [] if wire is None else list(wire["metadata"].get("finalizers", []))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_the_directory_goes_and_then_the_finalizer(node: Node) -> None:
    (node.directory / "sub").mkdir()
    (node.directory / "sub" / "file").write_text("x")
    node.api.put(PERSISTENT_VOLUMES, released())
    async with node.running():
        await node.until_gone()
    assert not node.directory.exists()
    assert node.finalizers == ["kubernetes.io/pv-protection"]
    (listed,) = node.api.asked("list", PERSISTENT_VOLUMES)
    assert listed.more["label_selector"] == "runtime.moorage.dev/node=n1"


async def test_links_that_a_pod_planted_lead_nowhere(node: Node, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    (node.directory / "link").symlink_to(precious)
    (node.directory / "up").symlink_to("../..")
    deep = node.directory.joinpath(*["d" * 200] * 15)
    deep.mkdir(parents=True)
    node.api.put(PERSISTENT_VOLUMES, released())
    async with node.running():
        await node.until_gone()
    assert not node.directory.exists()
    assert (precious / "file").read_text() == "kept"


async def test_what_an_agent_left_of_a_directory_that_it_made_goes_too(node: Node) -> None:
    unfinished = node.paths.unfinished_volume(HANDLE)
    unfinished.mkdir()
    node.api.put(PERSISTENT_VOLUMES, released())
    async with node.running():
        await node.until_gone()
    assert list(node.paths.local_volumes.iterdir()) == []


async def test_a_volume_that_is_missing_already_is_let_go(node: Node) -> None:
    node.directory.rmdir()
    node.api.put(PERSISTENT_VOLUMES, released())
    async with node.running():
        await node.until_gone()


async def test_it_waits_for_the_pod_that_uses_it(node: Node) -> None:
    place = node.paths.pod(UID).volume("local-path", HANDLE)
    node.mounter.bind(str(node.directory), place)
    node.api.put(PERSISTENT_VOLUMES, released())
    async with node.running():
        await settle(100)
        assert node.directory.exists()
        node.mounter.unmount(place)
        node.clock.advance(1.1)
        await node.until_gone()
    assert not node.directory.exists()


async def test_a_retained_volume_keeps_its_directory(node: Node) -> None:
    node.api.put(PERSISTENT_VOLUMES, released(policy="Retain"))
    async with node.running():
        await node.until_gone()
    assert node.directory.exists()


async def test_a_volume_whose_handle_names_nothing_goes_with_an_event(node: Node) -> None:
    node.api.put(PERSISTENT_VOLUMES, released(csi=OURS | {"volumeHandle": "x"}))
    async with node.running():
        await node.until_gone()
        node.clock.advance(1)
        await settle(50)
    assert [event[1:] for event in node.api.events] == [
        (
            "Warning",
            "VolumeFailedDelete",
            "volume handle 'x' is not the uid of a claim; nothing was removed",
        )
    ]
    assert node.directory.exists()
