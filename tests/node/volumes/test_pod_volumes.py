from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path
from typing import Any

import pytest

from moorage.api.configuration import ConfigMap, Secret
from moorage.api.errors import ForbiddenError
from moorage.api.pods import Pod
from moorage.linux.mounts import bind, unmount_all
from moorage.node.paths import NodePaths
from moorage.node.volumes.kinds import VolumeError
from moorage.node.volumes.mounting import SystemMounter
from moorage.node.volumes.payload import TokenWanted
from moorage.node.volumes.pod_volumes import VolumeKeeper
from moorage.wire.client.resources import CONFIG_MAPS
from tests.clocks import START_S, FakeClock
from tests.linux.mounting import bind_and_mount_disk, shared_tree
from tests.nesting import nest
from tests.node.objects import UID, WHERE, Wire, a_pod, wire_container
from tests.node.volumes.mounts import FakeMounter


class FakeObjects:
    """ConfigMaps and Secrets at hand; a failure is raised for every name."""

    def __init__(self) -> None:
        self.config_maps: dict[str, ConfigMap] = {}
        self.secrets: dict[str, Secret] = {}
        self.failure: Exception | None = None
        self.ages: list[float] = []

    async def get(self, resource: Any, namespace: str, name: str, *, max_age_s: float) -> Any:
        assert namespace == "shop"
        self.ages.append(max_age_s)
        if self.failure is not None:
            raise self.failure
        result: Any = self.config_maps if resource is CONFIG_MAPS else self.secrets
        return result.get(name)


class FakeTokens:
    """One token for everyone."""

    def __init__(self) -> None:
        self.text = "token"
        self.due_s: float | None = None

    async def get(self, pod: Pod, wanted: TokenWanted) -> str:
        del pod, wanted
        return self.text

    def renewal_s(self, pod: Pod) -> float | None:
        del pod
        return self.due_s

    def forget(self, uid: str) -> None:
        assert uid == UID


class Node:
    """A volume keeper on a temporary disk."""

    def __init__(self, root: Path) -> None:
        self.objects, self.tokens = FakeObjects(), FakeTokens()
        self.mounter, self.clock = FakeMounter(), FakeClock()
        self.labels: dict[str, str] = {}
        self.paths = NodePaths(root, root / "logs")
        self.keeper = VolumeKeeper(
            objects=self.objects,  # type: ignore[arg-type]
            tokens=self.tokens,  # type: ignore[arg-type]
            mounter=self.mounter,
            paths=self.paths,
            clock=self.clock,
            refresh_s=30.0,
            node_labels=lambda: self.labels,
        )

    def place(self, plugin: str, name: str) -> Path:
        return self.paths.pod(UID).volume(plugin, name)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def with_volumes(*volumes: Wire, **spec: Any) -> Pod:
    return a_pod(volumes=list(volumes), **spec)


SETTINGS = {"name": "settings", "configMap": {"name": "settings"}}


async def test_an_empty_directory_is_anyones(node: Node) -> None:
    mounted = await node.keeper.mount(with_volumes({"name": "v", "emptyDir": {}}), WHERE)
    place = node.place("empty-dir", "v")
    assert mounted["v"].path == place
    assert place.stat().st_mode & 0o777 == 0o777
    assert not node.mounter.sizes


async def test_mounting_again_keeps_what_is_in_it(node: Node) -> None:
    pod = with_volumes({"name": "v", "emptyDir": {}})
    await node.keeper.mount(pod, WHERE)
    place = node.place("empty-dir", "v")
    (place / "data").write_text("kept")
    place.chmod(0o700)
    await node.keeper.mount(pod, WHERE)
    assert (place / "data").read_text() == "kept"
    assert place.stat().st_mode & 0o777 == 0o700


class KilledError(BaseException):
    """The agent ends here."""


@pytest.mark.parametrize("medium", ["", "Memory"])
@pytest.mark.parametrize("at", ["pathlib.Path.chmod", "os.chown"])
async def test_an_agent_that_was_killed_leaves_no_half_made_directory(
    node: Node, monkeypatch: pytest.MonkeyPatch, medium: str, at: str
) -> None:
    def killed(*_: Any) -> None:
        raise KilledError

    security = {"fsGroup": os.getgid()}
    pod = with_volumes({"name": "v", "emptyDir": {"medium": medium}}, securityContext=security)
    with monkeypatch.context() as patched:
        patched.setattr(at, killed)
        with pytest.raises(KilledError):
            await node.keeper.mount(pod, WHERE)
    await node.keeper.mount(pod, WHERE)
    assert node.place("empty-dir", "v").stat().st_mode & 0o7777 == 0o2777
    assert list(node.mounter.sizes) == [node.place("empty-dir", "v")] * bool(medium)


async def test_a_half_made_directory_of_files_is_completed(node: Node) -> None:
    node.objects.config_maps["settings"] = ConfigMap(data={"level": "debug"})
    node.place("configmap", "settings").mkdir(mode=0o700, parents=True)
    await node.keeper.mount(with_volumes(SETTINGS), WHERE)
    assert node.place("configmap", "settings").stat().st_mode & 0o777 == 0o755


async def test_memory_that_a_reboot_took_is_mounted_again(node: Node) -> None:
    pod = with_volumes({"name": "v", "emptyDir": {"medium": "Memory"}})
    await node.keeper.mount(pod, WHERE)
    node.mounter.sizes.clear()
    await node.keeper.mount(pod, WHERE)
    assert list(node.mounter.sizes) == [node.place("empty-dir", "v")]


@pytest.mark.parametrize(
    ("volume", "limits", "size"),
    [
        ({}, [None], 8 << 30),
        ({"sizeLimit": "1Mi"}, [None], 1 << 20),
        ({"sizeLimit": "20Gi"}, [None], 8 << 30),
        ({}, ["1Gi", "2Gi"], 3 << 30),
        ({}, ["1Gi", None], 8 << 30),
        ({"sizeLimit": "0"}, ["1Gi"], 1 << 30),
    ],
    ids=["the node's", "its limit", "no more than the node", "the pod's", "one without", "zero"],
)
async def test_memory_is_limited(node: Node, volume: Wire, limits: Any, size: int) -> None:
    containers = [
        wire_container(f"c{index}", resources={"limits": {"memory": limit} if limit else {}})
        for index, limit in enumerate(limits)
    ]
    source = {"medium": "Memory", **volume}
    await node.keeper.mount(a_pod(*containers, volumes=[{"name": "v", "emptyDir": source}]), WHERE)
    assert node.mounter.sizes == {node.place("empty-dir", "v"): size}


async def test_files_from_the_api_are_read_only_and_secrets_stay_in_memory(node: Node) -> None:
    node.objects.config_maps["settings"] = ConfigMap(data={"level": "debug"})
    node.objects.secrets["login"] = Secret(data={"user": base64.b64encode(b"root").decode()})
    pod = with_volumes(SETTINGS, {"name": "login", "secret": {"secretName": "login"}})
    mounted = await node.keeper.mount(pod, WHERE)
    assert {name: volume.is_read_only for name, volume in mounted.items()} == {
        "settings": True,
        "login": True,
    }
    assert (node.place("configmap", "settings") / "level").read_text() == "debug"
    assert (node.place("secret", "login") / "user").read_text() == "root"
    assert list(node.mounter.sizes) == [node.place("secret", "login")]


async def test_a_volume_whose_source_is_missing_stops_the_pod_and_leaves_no_trace(
    node: Node,
) -> None:
    with pytest.raises(VolumeError) as caught:
        await node.keeper.mount(with_volumes(SETTINGS), WHERE)
    assert str(caught.value) == (
        'MountVolume.SetUp failed for volume "settings" : configmap "settings" not found'
    )
    assert not node.place("configmap", "settings").exists()


MIB = 1024 * 1024


def secret(size: int) -> Secret:
    return Secret(data={"key": base64.b64encode(b"x" * size).decode()})


@pytest.mark.slow
async def test_one_object_in_many_volumes_does_not_take_the_nodes_memory(node: Node) -> None:
    # Less than 64 MiB each, and one object.
    node.objects.secrets["big"] = secret(30 * MIB)
    volumes = [{"name": f"v{index}", "secret": {"secretName": "big"}} for index in range(8)]
    message = 'failed for volume "v4" : the pod\'s volumes take more than 134217728 bytes'
    with pytest.raises(VolumeError, match=message):
        await node.keeper.mount(with_volumes(*volumes), WHERE)
    assert len(list(node.paths.pod(UID).volumes.glob("*/*"))) == 4
    with pytest.raises(VolumeError, match=message):
        await node.keeper.refresh(with_volumes(*volumes), WHERE)
    assert len(await node.keeper.mount(with_volumes(*volumes[:4]), WHERE)) == 4


@pytest.mark.slow
async def test_many_large_objects_are_not_fetched_whole(node: Node) -> None:
    count = 200
    node.objects.secrets |= {f"s{index}": secret(2 * MIB) for index in range(count)}
    volumes = [{"name": f"v{i}", "secret": {"secretName": f"s{i}"}} for i in range(count)]
    message = "ConfigMaps and Secrets of the pod's volumes are larger than 134217728 bytes together"
    with pytest.raises(VolumeError, match=message):
        await node.keeper.mount(with_volumes(*volumes), WHERE)
    assert len(node.objects.ages) <= 64
    assert not node.paths.pod(UID).volumes.exists()


async def test_a_source_that_may_not_be_read_is_blamed_on_its_volume(node: Node) -> None:
    node.objects.failure = ForbiddenError("not yours")
    with pytest.raises(VolumeError, match='failed for volume "settings" : not yours'):
        await node.keeper.mount(with_volumes({"name": "e", "emptyDir": {}}, SETTINGS), WHERE)


async def test_a_kind_this_node_does_not_know_is_named(node: Node) -> None:
    pod = with_volumes({"name": "v", "nfs": {"server": "x"}})
    with pytest.raises(VolumeError) as caught:
        await node.keeper.mount(pod, WHERE)
    assert str(caught.value).startswith(
        'MountVolume.FindPluginBySpec failed for volume "v" : volumes of kind nfs are not supported'
    )


async def test_host_paths_and_images(node: Node, tmp_path: Path) -> None:
    pod = with_volumes(
        {"name": "h", "hostPath": {"path": str(tmp_path), "type": "Directory"}},
        {"name": "i", "image": {"reference": "model:1"}},
    )
    mounted = await node.keeper.mount(pod, WHERE)
    assert (mounted["h"].path, mounted["h"].is_read_only) == (tmp_path, False)
    assert (mounted["i"].path, mounted["i"].is_read_only) == (None, True)


async def test_a_running_pods_files_are_brought_up_to_date(node: Node) -> None:
    node.objects.config_maps["settings"] = ConfigMap(data={"level": "info"})
    pod = with_volumes(SETTINGS)
    await node.keeper.mount(pod, WHERE)
    node.objects.config_maps["settings"] = ConfigMap(data={"level": "debug"})
    await node.keeper.refresh(pod, WHERE)
    assert (node.place("configmap", "settings") / "level").read_text() == "debug"
    assert node.objects.ages == [1.0, 15.0]


async def test_failed_refresh_of_one_volume_does_not_prevent_the_others(
    node: Node,
) -> None:
    token = {"serviceAccountToken": {"path": "token"}}
    pod = with_volumes(SETTINGS, {"name": "token", "projected": {"sources": [token]}})
    node.objects.config_maps["settings"] = ConfigMap(data={"level": "info"})
    await node.keeper.mount(pod, WHERE)
    del node.objects.config_maps["settings"]
    node.tokens.text = "renewed"
    with pytest.raises(VolumeError, match='volume "settings" : configmap "settings" not found'):
        await node.keeper.refresh(pod, WHERE)
    assert (node.place("projected", "token") / "token").read_text() == "renewed"
    assert (node.place("configmap", "settings") / "level").read_text() == "info"


@pytest.mark.parametrize(
    ("volume", "due_s", "wanted"),
    [
        ({"name": "v", "emptyDir": {}}, None, None),
        (SETTINGS, None, 30.0),
        (SETTINGS, START_S + 5, 5.0),
        (SETTINGS, START_S + 500, 30.0),
        (SETTINGS, START_S - 500, 1.0),
    ],
    ids=["never changes", "usual", "a token is due sooner", "later", "overdue"],
)
def test_when_files_are_looked_at_again(
    node: Node, volume: Wire, due_s: float | None, wanted: float | None
) -> None:
    node.tokens.due_s = due_s
    assert node.keeper.refresh_due_s(with_volumes(volume)) == wanted


async def test_everything_of_a_pod_is_unmounted_and_removed(node: Node) -> None:
    await node.keeper.mount(with_volumes({"name": "v", "emptyDir": {"medium": "Memory"}}), WHERE)
    await node.keeper.remove(UID)
    assert not node.mounter.sizes
    assert not node.paths.pod(UID).root.exists()
    await node.keeper.remove(UID)


class StuckMounter(SystemMounter):
    """The kernel's mount table, on which some unmounts have no effect and report none."""

    def __init__(self, stuck: Path) -> None:
        self.stuck: Path | None = stuck

    def unmount(self, target: Path) -> None:
        if target != self.stuck:
            super().unmount(target)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
async def test_nothing_is_removed_through_a_mount_that_would_not_go(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    source = tmp_path / "host"
    source.mkdir()
    (source / "kept").write_text("kept")
    await node.keeper.mount(with_volumes({"name": "e", "emptyDir": {}}), WHERE)
    first, second = (node.paths.pod(UID).subpath("e", "app", number) for number in (0, 1))
    mounter = StuckMounter(first)
    node.keeper._mounter = mounter
    for target in (first, second):
        target.mkdir(parents=True)
        mounter.bind(str(source), target)
    try:
        with pytest.raises(OSError, match="still mounted") as caught:
            await node.keeper.remove(UID)
        assert caught.value.filename == str(first)
        assert (source / "kept").read_text() == "kept"
        assert (first / "kept").exists()
        assert not (second / "kept").exists()
        mounter.stuck = None
        await node.keeper.remove(UID)
        assert not node.paths.pod(UID).root.exists()
        assert (source / "kept").read_text() == "kept"
    finally:
        mounter.stuck = None
        for point in mounter.mounts_below(tmp_path):
            mounter.unmount(point)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
async def test_a_volume_in_use_is_removed_without_what_is_mounted_in_it(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    node.keeper._mounter = mounter = SystemMounter()
    source = tmp_path / "host"
    source.mkdir()
    (source / "kept").write_text("kept")
    await node.keeper.mount(with_volumes({"name": "e", "emptyDir": {}}), WHERE)
    target = node.place("empty-dir", "e") / "deep"
    target.mkdir()
    mounter.bind(str(source), target)
    user = await asyncio.create_subprocess_exec("sleep", "1000", cwd=target)
    try:
        await node.keeper.remove(UID)
        assert not node.paths.pod(UID).root.exists()
        assert (source / "kept").read_text() == "kept"
    finally:
        user.kill()
        await user.wait()


@pytest.mark.slow
@pytest.mark.usefixtures("removed_by_us")
async def test_a_volume_of_any_depth_is_removed(node: Node) -> None:
    await node.keeper.mount(with_volumes({"name": "v", "emptyDir": {}}), WHERE)
    nest(node.place("empty-dir", "v") / "deep", 3000)
    await node.keeper.remove(UID)
    assert not node.paths.pod(UID).root.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
async def test_what_could_not_be_unmounted_is_left_alone(node: Node, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("the host's")
    await node.keeper.mount(with_volumes({"name": "v", "emptyDir": {}}), WHERE)
    point = node.paths.pod(UID).subpath("v", "main", 0)
    point.mkdir(parents=True)
    # The keeper's mounter knows nothing of this one, as if unmounting had failed silently.
    bind(precious, point)
    try:
        for _ in range(2):
            with pytest.raises(OSError, match="mounted"):
                await node.keeper.remove(UID)
            assert (precious / "data").read_text() == "the host's"
        # The agent after this one finds the pod by its directory.
        assert node.paths.pod(UID).root.exists()
    finally:
        unmount_all(point)
    await node.keeper.remove(UID)
    assert not node.paths.pod(UID).root.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
async def test_the_hosts_mounts_in_a_bound_directory_outlive_the_pod(tmp_path: Path) -> None:
    """A subPath of a hostPath volume, in which the host mounts a disk while the pod runs."""
    with shared_tree(tmp_path):
        node = Node(tmp_path / "node")
        node.keeper._mounter = SystemMounter()
        await node.keeper.mount(with_volumes({"name": "e", "emptyDir": {}}), WHERE)
        target = node.paths.pod(UID).subpath("host", "app", 0)
        disk = bind_and_mount_disk(tmp_path / "data", target)
        with (disk / "open").open("w"):
            await node.keeper.remove(UID)
        assert disk.is_mount()
        assert not node.paths.pod(UID).root.exists()
