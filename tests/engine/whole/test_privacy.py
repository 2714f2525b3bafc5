"""What a user of this machine without rights can reach of an engine and its containers: nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.wire.cri import pb
from tests.engine.whole.engines import (
    BUSYBOX,
    Caller,
    RunningEngine,
    eventually,
    shell,
    skip_where_no_engine_runs,
)
from tests.intruder import reachable_paths

pytestmark = [pytest.mark.runtime]

FIRST, COUNT = 300_000, 65_536
SECRET = "correct-horse-battery-staple"
_FEATURES = {
    "ociVersionMin": "1.0.0",
    "ociVersionMax": "1.1.0",
    "linux": {"namespaces": ["user"], "mountExtensions": {"idmap": {"enabled": True}}},
}
_MAPPED = f"""case "$*" in
features) echo '{json.dumps(_FEATURES)}'; exit 0 ;;
esac
exec %s "$@"
"""
_SETUID = "cp /bin/busybox /tmp/su; chmod 4755 /tmp/su; echo ready; sleep 1000"


@pytest.fixture(scope="module")
def engine(archive: Path) -> Iterator[RunningEngine]:
    """An engine that was started with no umask at all."""
    skip_where_no_engine_runs()
    engine = RunningEngine(archive)
    try:
        before = os.umask(0)
        try:
            engine.start()
        finally:
            # Handlers that others could write would be refused.
            os.umask(before)
        yield engine
    finally:
        engine.clean()


def _passable(engine: RunningEngine) -> set[str]:
    return {str(path) for path in (engine.run, engine.run / "b", engine.run / "s")}


async def _serving(caller: Caller, name: str) -> None:
    async def is_listed() -> bool:
        status = await caller.cri.call(caller.cri.runtime.Status, pb.StatusRequest())
        offered = {
            handler.name: handler.features.user_namespaces for handler in status.runtime_handlers
        }
        return bool(offered.get(name))

    await eventually(is_listed, f"handler {name} with user namespaces")


def _namespaces(pid: Any = pb.CONTAINER) -> pb.NamespaceOption:
    mapping = [pb.IDMapping(host_id=FIRST, container_id=0, length=COUNT)]
    users = pb.UserNamespace(mode=pb.POD, uids=mapping, gids=mapping)
    return pb.NamespaceOption(pid=pid, userns_options=users)


async def _mapped_container(caller: Caller, handler: str, pid: Any, volume: Path) -> str:
    config = caller.pod_config(pid=pid)
    config.linux.security_context.namespace_options.CopyFrom(_namespaces(pid))
    sandbox = await caller.run_sandbox(config, handler)
    wanted = pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name="main"),
        image=pb.ImageSpec(image=BUSYBOX),
        command=shell(_SETUID),
        log_path="main.log",
        mounts=[
            pb.Mount(container_path="/volume", host_path=str(volume)),
            pb.Mount(container_path="/image", image=pb.ImageSpec(image=BUSYBOX), readonly=True),
        ],
        linux=pb.LinuxContainerConfig(
            security_context=pb.LinuxContainerSecurityContext(namespace_options=_namespaces(pid))
        ),
    )
    request = pb.CreateContainerRequest(pod_sandbox_id=sandbox, config=wanted)
    container = (await caller.cri.call(caller.cri.runtime.CreateContainer, request)).container_id
    await caller.start(container)
    return container


async def test_other_users_reach_nothing(
    caller: Caller, engine: RunningEngine, tmp_path: Path
) -> None:
    pod = await caller.run_pod()
    environment = [pb.KeyValue(key="PASSWORD", value=SECRET.encode())]
    image = pb.Mount(container_path="/image", image=pb.ImageSpec(image=BUSYBOX), readonly=True)
    plain = await caller.run(pod, *shell(_SETUID), envs=environment, mounts=[image])
    terminal = await caller.run(pod, "sleep", "1000", name="terminal", tty=True, stdin=True)
    shared = await caller.run_sandbox(caller.pod_config(pid=pb.POD))
    sharing = await caller.run(shared, *shell(_SETUID), name="sharing", pid=pb.POD)
    for container in (plain, sharing):
        await caller.wait_for_line(container, "ready")
    reachable = reachable_paths([engine.data, engine.run, engine.logs])
    assert set(reachable.pop("enter")) == _passable(engine)
    assert reachable == {}
    # A file of the tests' own shows that the walk sees what there is to see.
    (tmp_path / "open").touch(mode=0o644)
    del terminal


# crun 1.8 names no idmapped mounts among its features: it makes some and fails at others.
@pytest.mark.parametrize("runtime", ["runc"])
@pytest.mark.parametrize("pid", [pb.CONTAINER, pb.POD])
async def test_a_user_namespace_opens_its_own_bundle_to_its_root_alone(
    caller: Caller, engine: RunningEngine, runtime: str, pid: Any, tmp_path: Path
) -> None:
    if shutil.which(runtime) is None:
        pytest.skip(f"no {runtime}")
    name = f"mapped-{runtime}"
    file = engine.define(name, engine.program(name, _MAPPED % runtime))
    volume = tmp_path / "closed/volume"
    volume.mkdir(parents=True)
    volume.chmod(0o777)
    volume.parent.chmod(0o700)
    try:
        await _serving(caller, name)
        container = await _mapped_container(caller, name, pid, volume)
        await caller.wait_for_line(container, "ready")
        answer = await caller.exec(
            container, *shell("id -u; touch /volume/file /root/own; ls /image/bin/sh")
        )
        assert (answer.exit_code, answer.stderr) == (0, b"")
        bundle = (engine.run / "b" / container).stat()
        assert (bundle.st_uid, bundle.st_gid, bundle.st_mode & 0o777) == (0, FIRST, 0o710)
        reachable = reachable_paths([engine.data, engine.run, engine.logs])
        assert set(reachable.pop("enter")) == _passable(engine)
        assert reachable == {}
    finally:
        file.unlink()


async def test_what_an_earlier_engine_left_open_is_closed_at_the_start(
    caller: Caller, engine: RunningEngine
) -> None:
    pod = await caller.run_pod()
    await caller.run(pod, "sleep", "1000")
    engine.kill()
    for directory in (engine.data, engine.run, engine.data / "images", engine.run / "r"):
        directory.chmod(0o755)
    await caller.start_engine()
    reachable = reachable_paths([engine.data, engine.run])
    assert set(reachable.pop("enter")) == _passable(engine)
    assert reachable == {}


async def test_containers_get_the_modes_they_expect(caller: Caller) -> None:
    """Whatever the engine's umask: of files it makes for them, and of those the runtime makes."""
    pod = await caller.run_pod()
    mounts = [pb.Mount(container_path="/made/on/the/way", host_path="/tmp")]
    main = await caller.run(pod, "sleep", "1000", mounts=mounts)
    listed = "stat -c %a / /made /made/on /etc/hosts /etc/resolv.conf /etc/hostname /dev/shm /proc"
    answer = await caller.exec(main, *shell(f"umask; {listed}"))
    assert answer.stdout.split() == [
        b"0022", b"755", b"755", b"755", b"644", b"644", b"644", b"1777", b"555"
    ]  # fmt: skip
