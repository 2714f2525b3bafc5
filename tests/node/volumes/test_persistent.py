"""Persistent volumes of pods: found through their claims, mounted once, refused by name."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.api.errors import ForbiddenError
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from moorage.node.paths import NodePaths
from moorage.node.volumes.claimed import ClaimedVolume, PersistentMounts
from moorage.node.volumes.kinds import VolumeError
from moorage.node.volumes.pod_volumes import VolumeKeeper
from moorage.wire.client.resources import PERSISTENT_VOLUME_CLAIMS
from tests.api.claims.objects import HOSTNAME, claim_json, volume_json
from tests.clocks import FakeClock
from tests.node.objects import UID, WHERE, a_pod, wire_container
from tests.node.volumes.mounts import FakeMounter

HANDLE = "6a1f0b7e-9f0a-4c52-8a55-0e3f9a2b1c77"
OURS = {"driver": "local-path.runtime.moorage.dev", "volumeHandle": HANDLE}
OTHER_UID = "99999999-2222-3333-4444-555555555555"


class Node:
    """A volume keeper with one claim and one volume, on a temporary disk."""

    def __init__(self, root: Path) -> None:
        self.mounter, self.paths = FakeMounter(), NodePaths(root / "node", root / "logs")
        self.labels = {HOSTNAME: "n1"}
        self.claim: Any = claim_json(volume="pv", phase="Bound")
        self.claim["metadata"]["namespace"] = "shop"
        self.volume: Any = volume_json(claim=self.claim, hostPath=None, csi=OURS, node="n1")
        self.failure: Exception | None = None
        objects: Any = self
        self.keeper = VolumeKeeper(
            objects=objects,
            tokens=objects,
            mounter=self.mounter,
            paths=self.paths,
            clock=FakeClock(),
            refresh_s=30.0,
            node_labels=lambda: self.labels,
        )

    async def get(self, resource: Any, namespace: str, name: str, *, max_age_s: float) -> Any:
        assert max_age_s <= 1.0
        if self.failure is not None:
            raise self.failure
        if resource is PERSISTENT_VOLUME_CLAIMS:
            is_there = self.claim is not None and (namespace, name) == (
                "shop", self.claim["metadata"]["name"]
            )  # fmt: skip
            return msgspec.convert(self.claim, PersistentVolumeClaim) if is_there else None
        is_there = self.volume is not None and (namespace, name) == ("", "pv")
        return msgspec.convert(self.volume, PersistentVolume) if is_there else None

    def forget(self, uid: str) -> None:
        del uid

    async def mount(self, pod: Any) -> Any:
        return (await self.keeper.mount(pod, WHERE))["v"]

    def source(self, **source: Any) -> None:
        """Replace the volume's source."""
        self.volume["spec"] = {**self.volume["spec"], "csi": None, **source}

    @property
    def directory(self) -> Path:
        return self.paths.local_volume(HANDLE)

    @property
    def place(self) -> Path:
        return self.paths.pod(UID).volume("local-path", HANDLE)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def using(*, read_only: bool = False, uid: str = UID, **spec: Any) -> Any:
    source = {"claimName": "data", "readOnly": read_only}
    volumes = [{"name": "v", "persistentVolumeClaim": source}]
    return a_pod(volumes=volumes, meta={"uid": uid}, **spec)


async def failure(node: Node, pod: Any = None) -> str:
    with pytest.raises(VolumeError) as caught:
        await node.mount(pod or using())
    assert caught.value.reason == "FailedMount"
    return caught.value.message


# provisioned volumes


async def test_a_provisioned_volume_is_made_and_mounted(node: Node) -> None:
    mounted = await node.mount(using())
    assert mounted.path == node.place
    assert not mounted.is_read_only
    assert node.mounter.binds == {node.place: node.directory}
    assert node.directory.stat().st_mode & 0o777 == 0o777
    assert node.directory.parent.stat().st_mode & 0o777 == 0o700


class KilledError(BaseException):
    """The agent ends here."""


async def test_a_directory_is_made_whole_by_an_agent_that_comes_after_a_killed_one(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise KilledError

    before = os.umask(0o077)
    try:
        with monkeypatch.context() as patched:
            patched.setattr("os.fchmod", killed)
            patched.setattr("moorage.node.volumes.claimed.make_directories", _made)
            with pytest.raises(KilledError):
                await node.mount(using())
        assert not node.directory.exists()
        await node.mount(using())
    finally:
        os.umask(before)
    assert node.directory.stat().st_mode & 0o777 == 0o777
    assert list(node.paths.local_volumes.iterdir()) == [node.directory]


def _made(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)


class InodeMounter(FakeMounter):
    """Remembers which directories were bound, not only where they were."""

    def __init__(self) -> None:
        super().__init__()
        self.inodes: set[int] = set()

    def bind(self, source: str, target: Path) -> None:
        self.inodes.add(os.stat(source).st_ino)
        super().bind(source, target)


def test_pods_that_make_a_directory_at_once_get_the_same(tmp_path: Path) -> None:
    volume = msgspec.convert(
        volume_json(claim=claim_json(), hostPath=None, csi=OURS, node="n1"), PersistentVolume
    )
    for turn in range(20):
        mounter = InodeMounter()
        mounts = PersistentMounts(mounter, NodePaths(tmp_path / str(turn), tmp_path / "logs"))
        with ThreadPoolExecutor(4) as threads:
            mounting = [
                threads.submit(
                    mounts.mount, a_pod(meta={"uid": f"u{number}"}), "v", ClaimedVolume(volume),
                    {HOSTNAME: "n1"},
                )
                for number in range(4)
            ]  # fmt: skip
            for mounted in mounting:
                assert mounted.result().path is not None
        assert len(mounter.inodes) == 1


async def test_its_data_outlives_the_pod(node: Node) -> None:
    await node.mount(using())
    (node.directory / "data").write_text("kept")
    await node.keeper.remove(UID)
    assert not node.mounter.binds
    assert (node.directory / "data").read_text() == "kept"
    await node.mount(using(uid=OTHER_UID))
    assert (node.directory / "data").read_text() == "kept"


@pytest.mark.parametrize("is_local", [False, True])
async def test_a_volume_for_one_pod_waits_for_the_pod_that_has_it(
    node: Node, tmp_path: Path, *, is_local: bool
) -> None:
    if is_local:
        (tmp_path / "disk").mkdir()
        node.source(local={"path": str(tmp_path / "disk")})
    node.volume["spec"]["accessModes"] = ["ReadWriteOncePod"]
    await node.mount(using())
    await node.mount(using())
    assert await failure(node, using(uid=OTHER_UID)) == (
        'MountVolume.SetUp failed for volume "pv" : volume uses the ReadWriteOncePod access mode '
        "and is already in use by another pod"
    )
    await node.keeper.remove(UID)
    assert (await node.mount(using(uid=OTHER_UID))).path is not None


async def test_it_is_mounted_once_for_a_pod(node: Node) -> None:
    await node.mount(using())
    node.directory.chmod(0o700)
    binds = dict(node.mounter.binds)
    await node.mount(using())
    assert node.mounter.binds == binds
    assert node.directory.stat().st_mode & 0o777 == 0o700


async def test_read_only_is_read_only(node: Node) -> None:
    assert (await node.mount(using(read_only=True))).is_read_only


async def test_the_group_of_the_pod_gets_the_files(node: Node) -> None:
    group = os.getgid()
    await node.mount(using(securityContext={"fsGroup": group}))
    assert node.directory.stat().st_gid == group
    assert node.directory.stat().st_mode & 0o2070 == 0o2070


@pytest.mark.parametrize("is_shared", [False, True])
async def test_files_in_use_and_read_only_ones_keep_their_modes(
    node: Node, is_shared: bool
) -> None:
    if is_shared:
        await node.mount(using(uid=OTHER_UID))
    security = {"fsGroup": os.getgid()}
    await node.mount(using(read_only=not is_shared, securityContext=security))
    assert not node.directory.stat().st_mode & 0o2000


@pytest.mark.parametrize("handle", ["../../../etc", "..", "", "/etc", f"{HANDLE}/.."])
async def test_a_handle_that_is_no_uid_is_refused(node: Node, handle: str) -> None:
    node.volume["spec"]["csi"] = OURS | {"volumeHandle": handle}
    message = await failure(node)
    assert message == (
        'MountVolume.SetUp failed for volume "pv" : volume handle '
        f"{handle!r} is not the uid of a claim"
    )
    assert not node.mounter.binds


async def test_a_link_in_place_of_the_directory_is_not_followed(node: Node, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    node.directory.parent.mkdir(parents=True)
    node.directory.symlink_to(target)
    assert 'MountVolume.SetUp failed for volume "pv"' in await failure(node)
    assert not node.mounter.binds


# other sources


async def test_a_local_volume_is_a_directory_of_the_node(node: Node, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    node.source(local={"path": str(disk)})
    mounted = await node.mount(using())
    assert mounted.path == node.paths.pod(UID).volume("local-volume", "uid-pv")
    assert node.mounter.binds == {mounted.path: disk}


async def test_a_local_volume_must_be_there(node: Node, tmp_path: Path) -> None:
    node.source(local={"path": str(tmp_path / "none")})
    assert await failure(node) == (
        f'MountVolume.NewMounter initialization failed for volume "pv" : path "{tmp_path}/none" '
        "does not exist"
    )
    (tmp_path / "file").touch()
    node.source(local={"path": str(tmp_path / "file")})
    assert "local volumes of directories only" in await failure(node)
    node.source(local={"path": "/tmp/../etc"})
    assert "must not contain '..'" in await failure(node)


async def test_a_host_path_is_used_as_it_is(node: Node, tmp_path: Path) -> None:
    node.source(hostPath={"path": str(tmp_path / "made"), "type": "DirectoryOrCreate"})
    mounted = await node.mount(using())
    assert mounted.path == tmp_path / "made"
    assert mounted.path.is_dir()
    node.source(hostPath={"path": str(tmp_path / "none"), "type": "Directory"})
    assert "hostPath type check failed" in await failure(node)


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ({"nfs": {"server": "s", "path": "/"}}, "kind nfs"),
        ({"iscsi": {}}, "kind iscsi"),
        ({"scaleIO": {}}, "kind scaleIO"),
        ({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "x"}}, "csi driver ebs.csi.aws.com"),
    ],
)
async def test_other_sources_are_refused_by_name(node: Node, source: Any, what: str) -> None:
    node.source(**source)
    assert await failure(node) == (
        f'MountVolume.FindPluginBySpec failed for volume "pv" : persistent volumes of {what} are '
        "not supported by this node, only hostPath, local, and csi driver "
        "local-path.runtime.moorage.dev"
    )


async def test_block_volumes_are_refused_by_name(node: Node) -> None:
    node.volume["spec"]["volumeMode"] = "Block"
    assert await failure(node) == (
        'MountVolume.FindPluginBySpec failed for volume "pv" : raw block volumes (volumeMode '
        "Block) are not supported by this node"
    )
    mount = {"name": "v", "mountPath": "/v"}
    message = await failure(node, using(containers=[wire_container(volumeMounts=[mount])]))
    assert message.endswith("volume v has volumeMode Block, but is specified in volumeMounts")


async def test_a_file_system_is_no_device(node: Node) -> None:
    device = {"name": "v", "devicePath": "/dev/v"}
    message = await failure(node, using(containers=[wire_container(volumeDevices=[device])]))
    assert message.endswith("volume v has volumeMode Filesystem, but is specified in volumeDevices")


async def test_a_volume_of_another_node_is_refused(node: Node) -> None:
    node.labels = {HOSTNAME: "n2"}
    assert await failure(node) == (
        'MountVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms'
    )


# claims


def unprocessed(why: str) -> str:
    return (
        "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed "
        f"to process volumes=[v]: error processing PVC shop/data: {why}"
    )


@pytest.mark.parametrize(
    ("meta", "spec", "status", "why"),
    [
        ({}, {}, {"phase": "Pending"}, "PVC is not bound"),
        ({}, {"volumeName": ""}, {}, "PVC has empty pvc.Spec.VolumeName"),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {}, {}, "PVC is being deleted"),
        ({}, {"volumeName": "gone"}, {}, "failed to fetch PV gone from API server: "
         'persistentvolumes "gone" not found'),
        ({"uid": "other"}, {}, {}, "found PV object pv but its pv.Spec.ClaimRef.UID uid-data does "
         "not point to claim.UID other"),
    ],
)  # fmt: skip
async def test_a_claim_that_cannot_be_used(
    node: Node, meta: Any, spec: Any, status: Any, why: str
) -> None:
    node.claim["metadata"] |= meta
    node.claim["spec"] |= spec
    node.claim["status"] |= status
    assert await failure(node) == unprocessed(why)


async def test_a_missing_claim_and_an_unreadable_one(node: Node) -> None:
    node.claim = None
    assert await failure(node) == unprocessed(
        'failed to fetch PVC from API server: persistentvolumeclaims "data" not found'
    )
    node.failure = ForbiddenError("you may not")
    assert await failure(node) == unprocessed("failed to fetch PVC from API server: you may not")


async def test_a_volume_that_names_no_claim(node: Node) -> None:
    del node.volume["spec"]["claimRef"]
    assert await failure(node) == unprocessed(
        "found PV object pv but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to "
        "the claim"
    )


async def test_a_protected_claim_serves_its_pods_to_their_end(node: Node) -> None:
    node.claim["metadata"] |= {
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["kubernetes.io/pvc-protection"],
    }
    assert (await node.mount(using())).path == node.place


async def test_an_ephemeral_volume_has_a_claim_of_its_pod(node: Node) -> None:
    pod = a_pod(volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}])
    node.claim["metadata"] |= {"name": "web-v"}
    node.volume["spec"]["claimRef"]["name"] = "web-v"
    message = await failure(node, pod)
    assert message.endswith("PVC shop/web-v was not created for pod shop/web (pod is not owner)")
    node.claim["metadata"]["ownerReferences"] = [{"uid": UID, "controller": True}]
    assert (await node.mount(pod)).path == node.place
