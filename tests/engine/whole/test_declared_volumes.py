"""Paths that an image declares as volumes: directories of the container, filled from the image."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from moorage.wire.cri import CriError, engine_pb, pb
from tests.engine.images.builds import Entry, directory, hard_link, layer, link, oci_archive
from tests.engine.whole.engines import Caller, RunningEngine, shell
from tests.engine.whole.test_user_namespaces import mapped, user_namespace_options

__all__ = ["mapped"]

pytestmark = [pytest.mark.runtime]

PROGRAMS = {"runc": "runc", "crun": "crun", "gvisor": "runsc"}
SLEEP = ("sleep", "1000")
APP, HOSTILE = "moorage.local/declares:1", "moorage.local/declares-hostile:1"
_MIB = 1 << 20


@pytest.fixture(params=sorted(PROGRAMS))
def handler(request: pytest.FixtureRequest) -> str:
    if shutil.which(PROGRAMS[request.param]) is None:
        pytest.skip(f"{PROGRAMS[request.param]} is not installed")
    return str(request.param)


@pytest.fixture(autouse=True)
async def images(caller: Caller, tmp_path: Path) -> AsyncIterator[None]:
    """An image with volumes of all kinds, and one with a file for a volume."""
    files = layer(
        directory("bin"), Entry("bin/busybox", _busybox(), mode=0o755),
        *(link(f"bin/{name}", "busybox") for name in ("sh", "sleep", "readlink")),
        directory("etc"), Entry("etc/passwd", b"root:x:0:0::/:/bin/sh\n"),
        directory("data", 0o1770, owner=(12, 34)),
        Entry("data/file", b"from the image", owner=(56, 78), mode=0o4755),
        Entry("data/pipe", kind=tarfile.FIFOTYPE),
        Entry("data/mem", kind=tarfile.CHRTYPE, device=(1, 1), mode=0o666),
        hard_link("data/again", "data/file"),
        link("data/away", "/etc/passwd"),
        link("way", "/srv/real"), directory("srv"), directory("srv/real"),
        Entry("srv/real/behind", b"a link"),
        link("host", "/tmp"),
    )  # fmt: skip
    volumes = ("/data", "way", "/new/dir", "/host/x", "/etc/hosts", "/proc")
    for name, declared in ((APP, volumes), (HOSTILE, ("/etc/passwd",))):
        archive = oci_archive(
            tmp_path / "a.tar", [name], [files], {"Volumes": {path: {} for path in declared}}
        )
        request = engine_pb.LoadImagesRequest(archive=str(archive))
        await caller.cri.call(caller.cri.engine.LoadImages, request)
    yield
    await caller.remove_all()
    for name in (APP, HOSTILE):
        image = pb.RemoveImageRequest(image=pb.ImageSpec(image=name))
        await caller.cri.call(caller.cri.images.RemoveImage, image)


def _busybox() -> bytes:
    return Path(shutil.which("busybox") or "busybox").read_bytes()


async def _output(caller: Caller, container: str, script: str) -> list[str]:
    result = await caller.exec(container, *shell(script))
    assert result.exit_code == 0, result.stderr
    return result.stdout.decode().splitlines()


async def test_declared_volumes_have_what_the_image_has_and_can_be_written(
    caller: Caller, engine: RunningEngine, handler: str
) -> None:
    pod = await caller.run_pod(handler)
    main = await caller.run(pod, *SLEEP, image=APP)
    look = "busybox stat -c '%n %a %u %g' /data /data/file /new/dir; cat /data/file /way/behind"
    assert await _output(caller, main, look.replace("cat", "busybox cat")) == [
        "/data 1770 12 34", "/data/file 4755 56 78", "/new/dir 755 0 0", "from the imagea link",
    ]  # fmt: skip
    await _output(caller, main, "for d in /data /way /new/dir /host/x; do echo x >$d/w; done")
    mounts = await _output(caller, main, "busybox cat /proc/mounts")
    points = {line.split()[1] for line in mounts}
    assert {"/data", "/srv/real", "/new/dir", "/tmp/x", "/etc/hosts"} <= points
    assert await _output(caller, main, "readlink /data/away") == ["/etc/passwd"]
    assert await _output(caller, main, "test /data/again -ef /data/file && echo one") == ["one"]
    # A node arrives, as in containerd, and opens nothing.
    assert await _output(caller, main, "test -c /data/mem && echo node") == ["node"]
    assert (await caller.exec(main, *shell("true </data/mem"))).exit_code != 0
    other = await caller.run(pod, *SLEEP, image=APP, name="other")
    assert await _output(caller, other, "busybox ls /way") == ["behind"]
    await caller.restart()
    assert await _output(caller, main, "busybox ls /way") == ["behind", "w"]
    await caller.remove_pod(pod)
    assert not list((engine.data / "images" / "containers").iterdir())


async def test_declared_volumes_are_writable_in_a_read_only_root(
    caller: Caller, handler: str
) -> None:
    pod = await caller.run_pod(handler)
    main = await caller.run(pod, *SLEEP, image=APP, is_read_only=True)
    script = "echo x >/data/w; echo x >/new/dir/w; echo x >/w 2>/dev/null || echo refused"
    assert await _output(caller, main, script) == ["refused"]


async def test_what_is_written_to_a_declared_volume_counts(caller: Caller, handler: str) -> None:
    pod = await caller.run_pod(handler)
    main = await caller.run(pod, *SLEEP, image=APP)
    await _output(caller, main, "busybox dd if=/dev/zero of=/data/large bs=1M count=20 && sync")
    request = pb.ContainerStatsRequest(container_id=main)
    reply = await caller.cri.call(caller.cri.runtime.ContainerStats, request)
    assert reply.stats.writable_layer.used_bytes.value >= 20 * _MIB
    file_systems = await caller.cri.call(caller.cri.images.ImageFsInfo, pb.ImageFsInfoRequest())
    (writable,) = file_systems.container_filesystems
    assert writable.used_bytes.value >= 20 * _MIB


async def test_a_mount_at_its_path_takes_the_place_of_a_declared_volume(
    caller: Caller, tmp_path: Path
) -> None:
    (tmp_path / "own").write_text("")
    mounts = [
        pb.Mount(container_path=path, host_path=str(tmp_path)) for path in ("/data", "/srv/real")
    ]
    main = await caller.run(await caller.run_pod(), *SLEEP, image=APP, mounts=mounts)
    assert await _output(caller, main, "cd /data && echo *; cd /way && echo *") == [
        "a.tar own", "a.tar own",
    ]  # fmt: skip
    assert [mount.container_path for mount in (await caller.status(main)).mounts] == [
        "/data", "/srv/real",
    ]  # fmt: skip


async def test_owners_are_those_of_the_pods_user_namespace(caller: Caller, mapped: str) -> None:
    options = user_namespace_options()
    config = caller.pod_config()
    config.linux.security_context.namespace_options.CopyFrom(options)
    pod = await caller.run_sandbox(config, mapped)
    main = await caller.run(pod, *SLEEP, image=APP, namespace_options=options)
    look = "echo x >/new/dir/w; busybox stat -c '%n %a %u %g' /data /data/file /new/dir/w"
    assert await _output(caller, main, look) == [
        "/data 1770 12 34", "/data/file 4755 56 78", "/new/dir/w 644 0 0",
    ]  # fmt: skip


async def test_a_file_for_a_volume_is_refused_and_leaves_nothing(
    caller: Caller, engine: RunningEngine
) -> None:
    pod = await caller.run_pod()
    with pytest.raises(
        CriError, match="declares the volume '/etc/passwd', which is no dir"
    ) as raised:
        await caller.create(pod, *SLEEP, image=HOSTILE)
    assert raised.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert not list((engine.data / "images" / "containers").iterdir())
