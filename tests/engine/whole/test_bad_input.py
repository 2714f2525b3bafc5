"""Requests and machines that are wrong: the right code, a sentence, nothing lost, nothing left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from moorage.wire.cri import CriClient, CriError, engine_pb, pb
from tests.engine.whole.engines import (
    BUSYBOX,
    Caller,
    RunningEngine,
    an_engine,
    eventually,
    skip_where_no_engine_runs,
)

pytestmark = [pytest.mark.runtime]

SLEEP = ("sleep", "1000")
ABSENT = "f" * 64
Code = grpc.StatusCode

# Call → its request for a sandbox or container that there is none of, and the code it answers.
UNKNOWN_IDS: dict[str, tuple[Callable[[str], Any], Code | None]] = {
    "StopPodSandbox": (lambda id_: pb.StopPodSandboxRequest(pod_sandbox_id=id_), None),
    "RemovePodSandbox": (lambda id_: pb.RemovePodSandboxRequest(pod_sandbox_id=id_), None),
    "StopContainer": (lambda id_: pb.StopContainerRequest(container_id=id_), None),
    "RemoveContainer": (lambda id_: pb.RemoveContainerRequest(container_id=id_), None),
    "PodSandboxStatus": (
        lambda id_: pb.PodSandboxStatusRequest(pod_sandbox_id=id_),
        Code.NOT_FOUND,
    ),
    "ContainerStatus": (
        lambda id_: pb.ContainerStatusRequest(container_id=id_),
        Code.NOT_FOUND,
    ),
    "StartContainer": (lambda id_: pb.StartContainerRequest(container_id=id_), Code.NOT_FOUND),
    "ExecSync": (lambda id_: pb.ExecSyncRequest(container_id=id_, cmd=["true"]), Code.NOT_FOUND),
    "Exec": (
        lambda id_: pb.ExecRequest(container_id=id_, cmd=["true"], stdout=True),
        Code.NOT_FOUND,
    ),
    "Attach": (lambda id_: pb.AttachRequest(container_id=id_, stdout=True), Code.NOT_FOUND),
    "PortForward": (lambda id_: pb.PortForwardRequest(pod_sandbox_id=id_), Code.NOT_FOUND),
    "ContainerStats": (lambda id_: pb.ContainerStatsRequest(container_id=id_), Code.NOT_FOUND),
    "PodSandboxStats": (
        lambda id_: pb.PodSandboxStatsRequest(pod_sandbox_id=id_),
        Code.NOT_FOUND,
    ),
    "UpdateContainerResources": (
        lambda id_: pb.UpdateContainerResourcesRequest(container_id=id_),
        Code.NOT_FOUND,
    ),
    "ReopenContainerLog": (
        lambda id_: pb.ReopenContainerLogRequest(container_id=id_),
        Code.NOT_FOUND,
    ),
    "CheckpointContainer": (
        lambda id_: pb.CheckpointContainerRequest(container_id=id_),
        Code.NOT_FOUND,
    ),
    "CreateContainer": (
        lambda id_: pb.CreateContainerRequest(
            pod_sandbox_id=id_,
            config=pb.ContainerConfig(metadata=pb.ContainerMetadata(name="main")),
        ),
        Code.NOT_FOUND,
    ),
}


@pytest.fixture(scope="module")
def engine(archive: Path) -> Iterator[RunningEngine]:
    """An engine that makes nothing in advance, so that what is left is a pod's."""
    with an_engine(archive, spares=0) as engine:
        yield engine


@contextmanager
def refused(code: Code, words: str | None = None) -> Iterator[None]:
    """What is in the block is refused with a code, in a sentence on one line."""
    with pytest.raises(CriError, match=words) as raised:
        yield
    assert raised.value.code is code, raised.value
    assert raised.value.sentence
    assert "\n" not in raised.value.sentence


@pytest.mark.parametrize("call", UNKNOWN_IDS)
async def test_unknown_id_is_not_found_or_ignored(caller: Caller, call: str) -> None:
    make, code = UNKNOWN_IDS[call]
    method = getattr(caller.cri.runtime, call)
    for unknown in (ABSENT, "f" * 12):
        if code is None:
            await caller.cri.call(method, make(unknown))
        else:
            with refused(code, "not found"):
                await caller.cri.call(method, make(unknown))


async def test_filters_that_match_nothing_give_empty_lists(caller: Caller) -> None:
    await caller.run_pod()
    runtime = caller.cri.runtime
    pods = pb.ListPodSandboxRequest(filter=pb.PodSandboxFilter(label_selector={"app": "other"}))
    assert not (await caller.cri.call(runtime.ListPodSandbox, pods)).items
    containers = pb.ListContainersRequest(filter=pb.ContainerFilter(id=ABSENT))
    assert not (await caller.cri.call(runtime.ListContainers, containers)).containers


async def test_one_name_is_one_sandbox_until_it_is_removed(caller: Caller) -> None:
    config = caller.pod_config()
    tried = await asyncio.gather(
        *(caller.run_sandbox(config) for _ in range(5)), return_exceptions=True
    )
    made = [attempt for attempt in tried if isinstance(attempt, str)]
    assert len(made) == 1, tried
    assert {attempt.code for attempt in tried if isinstance(attempt, CriError)} == {
        Code.FAILED_PRECONDITION
    }
    await caller.stop_pod(made[0])
    with refused(Code.FAILED_PRECONDITION, "reserved for"):
        await caller.run_sandbox(config)
    config.metadata.attempt = 1
    second = await caller.run_sandbox(config)
    await caller.remove_pod(second)
    await caller.run_sandbox(config)


async def test_one_name_is_one_container_until_it_is_removed(caller: Caller) -> None:
    pod = await caller.run_pod()
    first = await caller.create(pod, *SLEEP)
    with refused(Code.FAILED_PRECONDITION, "reserved for"):
        await caller.create(pod, *SLEEP)
    await caller.remove(first)
    await caller.create(pod, *SLEEP)


async def test_a_refused_sandbox_leaves_nothing(caller: Caller, engine: RunningEngine) -> None:
    before = engine.leftovers()
    with refused(Code.UNKNOWN, 'no runtime for "absent" is configured'):
        await caller.run_pod("absent")
    with refused(Code.INVALID_ARGUMENT, "metadata"):
        await caller.run_sandbox(pb.PodSandboxConfig())
    config = caller.pod_config()
    config.annotations["kubernetes.io/ingress-bandwidth"] = "much"
    with refused(Code.INVALID_ARGUMENT, "ingress-bandwidth"):
        await caller.run_sandbox(config)
    assert not await caller.pods()
    assert engine.leftovers().get("processes") == before.get("processes")


async def test_a_refused_container_leaves_nothing(caller: Caller, engine: RunningEngine) -> None:
    pod = await caller.run_pod()
    before = engine.leftovers()
    with refused(Code.NOT_FOUND, "no.such/image:1"):
        await caller.create(pod, image="no.such/image:1")
    with refused(Code.INVALID_ARGUMENT):
        await caller.create(pod, image="")
    with refused(Code.INVALID_ARGUMENT, "metadata"):
        await caller.create(pod, name="")
    mounts = [pb.Mount(container_path="/v", image=pb.ImageSpec(image=BUSYBOX))]
    with refused(Code.INVALID_ARGUMENT, "read-only"):
        await caller.create(pod, mounts=mounts)
    mounts[0].readonly = True
    mounts[0].image.image = "no.such/volume:1"
    with refused(Code.NOT_FOUND, "no.such/volume:1"):
        await caller.create(pod, mounts=mounts)
    assert not await caller.containers()
    assert engine.leftovers() == before


async def test_each_call_has_its_state(caller: Caller) -> None:
    pod = await caller.run_pod()
    main = await caller.create(pod, *SLEEP)
    with refused(Code.FAILED_PRECONDITION, "not running"):
        await caller.exec(main, "true")
    reopen = pb.ReopenContainerLogRequest(container_id=main)
    with refused(Code.FAILED_PRECONDITION, "not running"):
        await caller.cri.call(caller.cri.runtime.ReopenContainerLog, reopen)
    await caller.start(main)
    with refused(Code.FAILED_PRECONDITION, "only a created one"):
        await caller.start(main)
    with refused(Code.INVALID_ARGUMENT):
        await caller.exec(main)
    await caller.stop(main)
    with refused(Code.FAILED_PRECONDITION, "not running"):
        await caller.exec(main, "true")
    await caller.stop_pod(pod)
    with refused(Code.FAILED_PRECONDITION, "not ready"):
        await caller.create(pod, name="late")


async def test_program_missing_from_the_image_is_reported(caller: Caller) -> None:
    pod = await caller.run_pod()
    main = await caller.create(pod, "/no-such-program")
    with refused(Code.UNKNOWN, "no-such-program"):
        await caller.start(main)
    status = await caller.status(main)
    assert (status.state, status.exit_code, status.reason) == (
        pb.CONTAINER_EXITED,
        128,
        "StartError",
    )
    assert "no-such-program" in status.message


async def test_a_handler_without_its_program_is_not_available(
    caller: Caller, engine: RunningEngine
) -> None:
    engine.define("missing", "/no/such/runtime")
    with refused(Code.UNKNOWN, "/no/such/runtime"):
        await _once_known(caller, "missing")
    reply = await caller.cri.call(caller.cri.runtime.Status, pb.StatusRequest(verbose=True))
    assert "missing" not in {handler.name for handler in reply.runtime_handlers}
    assert "missing: /no/such/runtime" in reply.info["handlers"]


async def test_a_program_that_goes_away_fails_the_start_only(
    caller: Caller, engine: RunningEngine
) -> None:
    program = engine.program("fake_fleeting", 'exec runc "$@"')
    engine.define("fleeting", program)
    pod = await _once_known(caller, "fleeting")
    main = await caller.run(pod, *SLEEP)
    other = await caller.create(pod, *SLEEP, name="other")
    program.rename(program.with_suffix(".away"))
    try:
        with refused(Code.UNKNOWN, "fake_fleeting"):
            await caller.start(other)
    finally:
        program.with_suffix(".away").rename(program)
    assert (await caller.status(other)).exit_code == 128
    assert (await caller.status(main)).state == pb.CONTAINER_RUNNING
    assert (await caller.exec(main, "echo", "on")).stdout == b"on\n"
    await caller.remove_pod(pod)


LIES = {
    # create says it was done.
    "nothing_made": 'case "$*" in *" create "*) exit 0;; esac; exec runc "$@"',
    # create names a process that does not exist.
    "a_wrong_process": 'case "$*" in *" create "*) for w; do case $p in --pid-file) echo 999999999'
    ' >"$w";; esac; p=$w; done; exit 0;; esac; exec runc "$@"',
    # create fails, and says so only in words.
    "words": 'case "$*" in *" create "*) echo "no such thing here" >&2; exit 1;; esac;'
    ' exec runc "$@"',
    # start says it was done, for a container that had been made.
    "a_failed_start": 'case "$*" in *" start "*) echo "will not start" >&2; exit 1;; esac;'
    ' exec runc "$@"',
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_runtime_that_lies_fails_its_container_only(
    caller: Caller, engine: RunningEngine, lie: str
) -> None:
    name = f"lie-{lie.replace('_', '-')}"
    engine.define(name, engine.program(f"fake_{lie}", LIES[lie]))
    pod = await _once_known(caller, name)
    before = engine.processes()
    main = await caller.create(pod, *SLEEP)
    with refused(Code.UNKNOWN):
        async with asyncio.timeout(20):
            await caller.start(main)
    status = await caller.status(main)
    assert (status.exit_code, status.reason) == (128, "StartError")

    async def are_gone() -> bool:
        return engine.processes() == before

    await eventually(are_gone, "the end of what was started", 5)
    await caller.remove_pod(pod)


async def test_an_archive_that_is_damaged_is_refused(
    caller: Caller, archive: Path, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged.tar"
    _write_damaged(archive, damaged)
    request = engine_pb.LoadImagesRequest(archive=str(damaged))
    before = await caller.cri.call(caller.cri.images.ListImages, pb.ListImagesRequest())
    with pytest.raises(CriError) as raised:
        await caller.cri.call(caller.cri.engine.LoadImages, request)
    assert raised.value.code in (Code.INVALID_ARGUMENT, Code.UNKNOWN)
    reply = await caller.cri.call(caller.cri.images.ListImages, pb.ListImagesRequest())
    assert reply == before


async def test_full_disk_is_reported_and_leaves_nothing(archive: Path) -> None:
    skip_where_no_engine_runs()
    engine = RunningEngine(archive)
    try:
        engine.limit_disk(24 << 20)
        engine.start()
        async with CriClient(engine.endpoint) as cri:
            await _fill_disk(Caller(engine, cri))
    finally:
        engine.clean()


async def _fill_disk(caller: Caller) -> None:
    engine = caller.engine
    running = await caller.run_pod()
    main = await caller.run(running, *SLEEP)
    ballast = engine.data / "ballast"
    _write_until_full(ballast)
    with refused(Code.RESOURCE_EXHAUSTED):
        for _ in range(50):
            await caller.create(running, *SLEEP, name="other")
    with refused(Code.RESOURCE_EXHAUSTED):
        await caller.run_pod()
    assert set(await caller.containers()) == {main}
    assert set(await caller.pods()) == {running}
    assert (await caller.exec(main, "echo", "on")).stdout == b"on\n"
    # What ends while nothing can be written is still seen to have ended.
    await caller.stop(main)
    assert (await caller.status(main)).exit_code == 137
    ballast.unlink()
    await caller.remove_pod(running)
    assert not await caller.containers()
    other = await caller.run(await caller.run_pod(), "true")
    assert (await caller.ended(other)).exit_code == 0
    await caller.remove_all()
    engine.stop()
    engine.drain()
    assert not engine.leftovers()


async def test_a_second_engine_on_the_same_directories_is_refused(
    engine: RunningEngine, caller: Caller
) -> None:
    assert engine.second_start() != 0
    assert "another engine is running on" in engine.log_text
    await caller.run_pod()


async def _once_known(caller: Caller, handler: str) -> str:
    """A sandbox of a handler whose file has just been written."""
    known: list[str] = []

    async def is_known() -> bool:
        request = pb.StatusRequest(verbose=True)
        reply = await caller.cri.call(caller.cri.runtime.Status, request)
        known[:] = reply.info["handlers"].splitlines()
        return any(line.startswith(f"{handler}: ") and "yet" not in line for line in known)

    await eventually(is_known, f"handler {handler}", 5)
    return await caller.run_pod(handler)


def _write_damaged(archive: Path, target: Path) -> None:
    content = archive.read_bytes()
    target.write_bytes(content[: len(content) // 2])


def _write_until_full(file: Path) -> None:
    for size in (1 << 20, 4096, 1):
        try:
            with file.open("ab", buffering=0) as output:
                while output.write(bytes(size)):
                    continue
        except OSError:
            continue
