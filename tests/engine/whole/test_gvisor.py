"""Pods under a kernel of their own, whose parts the host does not see."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest

from moorage.wire.cri import pb
from tests.engine.whole.engines import Caller, RunningEngine, eventually, shell
from tests.peers import required_peer

pytestmark = pytest.mark.runtime

SLEEP = ("sleep", "5123")
PUBLISHED = "gvisor-published"
"""A handler of the runsc that `make peers` builds."""


_LOADERS = (Path("/lib64/ld-linux-x86-64.so.2"), Path("/lib/ld-linux-aarch64.so.1"))


@pytest.fixture(params=["gvisor", PUBLISHED])
async def gvisor(request: pytest.FixtureRequest, caller: Caller) -> str:
    """A handler: of the host's runsc, or of the published one by a file."""
    if request.param == PUBLISHED:
        return await _published(caller)
    if shutil.which("runsc") is None:
        pytest.skip("runsc is not installed")
    return "gvisor"


async def _published(caller: Caller) -> str:
    file = caller.engine.handlers / f"{PUBLISHED}.toml"
    text = f'adapter = "runsc"\nbinary = "{required_peer("runsc")}"\n'
    await asyncio.to_thread(file.write_text, text)

    async def is_listed() -> bool:
        reply = await caller.cri.call(caller.cri.runtime.Status, pb.StatusRequest())
        return PUBLISHED in {handler.name for handler in reply.runtime_handlers}

    await eventually(is_listed, "the handler of the published runsc")
    return PUBLISHED


async def test_containers_that_share_processes_see_the_pods_first_one(
    caller: Caller, gvisor: str
) -> None:
    config = caller.pod_config(pid=pb.POD)
    pod = await caller.run_sandbox(config, gvisor)
    await caller.run(pod, *SLEEP, pid=pb.POD)
    other = await caller.run(pod, *shell("sleep 6000"), name="other", pid=pb.POD)
    listed = (await caller.exec(other, "ps")).stdout
    assert b"5123" in listed
    first = (await caller.exec(other, "cat", "/proc/1/cmdline")).stdout
    assert b"sleep" not in first


async def test_a_pod_stopped_with_its_containers_leaves_nothing_and_no_complaint(
    caller: Caller, engine: RunningEngine, gvisor: str
) -> None:
    pod = await caller.run_pod(gvisor)
    for name in ("one", "two", "three"):
        await caller.run(pod, *SLEEP, name=name)
    await caller.stop_pod(pod)
    await caller.remove_pod(pod)
    assert "background task failed" not in engine.log_text
    assert "cgroups" not in engine.leftovers()


async def test_containers_go_with_a_kernel_that_is_killed(
    caller: Caller, engine: RunningEngine, gvisor: str
) -> None:
    pod = await caller.run_pod(gvisor)
    main = await caller.run(pod, *SLEEP)
    os.kill(_kernel_of(pod), signal.SIGKILL)
    await caller.ended(main)

    async def is_down() -> bool:
        return (await caller.pod_status(pod)).state == pb.SANDBOX_NOTREADY

    await eventually(is_down, "a pod without a kernel that is not ready")
    await caller.remove_pod(pod)
    assert "background task failed" not in engine.log_text


async def test_programs_of_a_current_c_library_can_look_at_files(caller: Caller) -> None:
    """Debian 12's own gVisor refuses the flags of its own `ls`; a published one takes them."""
    pod = await caller.run_pod(await _published(caller))
    main = await caller.run(pod, *SLEEP, mounts=_host_mounts())
    loader = _loader()
    libraries = f"/host/lib/{os.uname().machine}-linux-gnu:/host/usr/lib"
    listed = await caller.exec(
        main, f"/host{loader}", "--library-path", libraries, "/host/usr/bin/ls", "-l", "/bin/sh"
    )
    assert (listed.exit_code, listed.stderr) == (0, b"")


def _loader() -> Path:
    """The host's loader, where its links lead: inside they would lead elsewhere."""
    return next(loader for loader in _LOADERS if loader.exists()).resolve()


def _host_mounts() -> list[pb.Mount]:
    """The host's programs and libraries, below /host."""
    places = (Path("/usr"), Path("/lib"), Path("/lib64"))
    return [
        pb.Mount(container_path=f"/host{place}", host_path=str(place.resolve()), readonly=True)
        for place in places
        if place.exists()
    ]


def _kernel_of(pod: str) -> int:
    """The process that is a pod's kernel: its command line names both."""
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            words = (directory / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words[0] == b"runsc-sandbox" and pod.encode() in words:
            return int(directory.name)
    raise AssertionError(f"pod {pod} has no kernel")


async def test_containers_share_what_their_pods_kernel_uses(caller: Caller, gvisor: str) -> None:
    pod = await caller.run_pod(gvisor)
    mains = [await caller.run(pod, *shell("while :; do :; done"), name=name) for name in ("a", "b")]

    async def has_usage() -> bool:
        request = pb.ListContainerStatsRequest(filter=pb.ContainerStatsFilter(pod_sandbox_id=pod))
        listed = (await caller.cri.call(caller.cri.runtime.ListContainerStats, request)).stats
        assert {stats.attributes.id for stats in listed} == set(mains)
        return all(
            stats.cpu.usage_core_nano_seconds.value > 0
            and stats.memory.working_set_bytes.value > 1 << 20
            for stats in listed
        )

    await eventually(has_usage, "the containers' processor time and memory")
