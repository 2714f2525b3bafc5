"""A container's life on real directories and a fake runtime: records, calls, events, undoing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import msgspec
import pytest

from moorage.cri import pb
from moorage.engine.containers import life
from moorage.engine.containers.bundle import _image_name
from moorage.engine.containers.messages import container_status
from moorage.engine.errors import (
    EngineError,
    FailedError,
    InvalidError,
    NotFoundError,
    PreconditionError,
    TimeLimitError,
)
from moorage.engine.records import Stage, User
from moorage.handlers.adapters import AdapterError, Exit, TaskNotFoundError
from tests.clocks import START_NS, settle
from tests.engine.fakes import FINISHED_NS, FIRST_PID
from tests.engine.parts import (
    ABSENT,
    APP,
    DATA,
    PARENT,
    Bench,
    bench,
    container_config,
    make_bench,
    place,
)

__all__ = ["bench", "place"]

CREATED = ["create", "start"]


def volume(path: str, **fields: object) -> pb.Mount:
    given = {"readonly": True, "image": pb.ImageSpec(image=DATA), **fields}
    return pb.Mount(container_path=path, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "is_tagged", "shown"),
    [(APP, True, APP), ("", True, APP), ("other:9", True, APP), ("Not A Name", True, APP),
     ("", False, "the id")],
)  # fmt: skip
async def test_the_status_names_the_image_by_its_tag_though_kubelets_create_by_id(
    bench: Bench, asked: str, is_tagged: bool, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = bench.context.images.find(APP)
    if not is_tagged:
        untagged = msgspec.structs.replace(image, tags=())
        monkeypatch.setattr(bench.context.images, "find", lambda _name: untagged)
    config = container_config(image=image.id)
    config.image.user_specified_image = asked
    container = await bench.containers.create(await bench.pod(), config)
    named = container_status(container).image
    assert named.image == (image.id if shown == "the id" else shown)
    assert named.user_specified_image == asked


async def test_the_tag_that_was_asked_for_comes_before_the_others(bench: Bench) -> None:
    image = bench.context.images.find(APP)
    both = msgspec.structs.replace(image, tags=("localhost/a:1", APP))
    assert _image_name(container_config(image=APP), both) == APP
    assert _image_name(container_config(image=image.id), both) == "localhost/a:1"


async def test_a_container_is_a_bundle_and_a_record(bench: Bench) -> None:
    sandbox = await bench.pod()
    await bench.told()
    container = await bench.created(sandbox, log_path="main/0.log")
    record, image = container.record, bench.context.images.find(APP)
    assert bench.on_disk("containers").keys() == {container.id}
    assert (record.stage, record.user, record.stop_signal) == (
        Stage.CREATED,
        User(1000, 1001, (1001,)),
        "SIGUSR1",
    )
    assert (record.image_id, record.image_ref) == (image.id, next(iter(image.digests), image.id))
    assert (record.created_at_ns, record.log_path) == (START_NS, "/logs/main/0.log")
    bundle = bench.paths.bundle(container.id)
    assert (bundle / "rootfs/app").read_bytes() == b"run"
    assert os.stat(bundle / "config.json").st_mode & 0o777 == 0o600
    process = json.loads((bundle / "config.json").read_text())["process"]
    assert process["args"] == ["/app", "serve"]
    assert (process["cwd"], process["user"]["uid"]) == ("/srv", 1000)
    assert "A=image" in process["env"]
    assert await bench.told() == [("CREATED", container.id)]
    assert not bench.adapter.calls_of(container.id)


@pytest.mark.parametrize(
    ("directory", "path", "expected"),
    [("/logs", "a", "/logs/a"), ("", "a", ""), ("/logs", "", "")],
)
async def test_output_goes_nowhere_without_both_halves_of_the_path(
    bench: Bench, directory: str, path: str, expected: str
) -> None:
    sandbox = await bench.pod()
    sandbox.config.log_directory = directory
    assert (await bench.created(sandbox, log_path=path)).record.log_path == expected


@pytest.mark.parametrize(
    ("config", "error", "text"),
    [
        (container_config(name=""), InvalidError, "metadata with a name"),
        (container_config(image=""), InvalidError, "names no image"),
        (container_config(image=ABSENT), NotFoundError, f"'{ABSENT}' is not present: pull it"),
        (
            container_config(mounts=[volume("/v"), volume("/w", readonly=False)]),
            InvalidError,
            "image volume /w must be read-only",
        ),
        (
            container_config(mounts=[volume("/v", image=pb.ImageSpec(image=ABSENT))]),
            NotFoundError,
            ABSENT,
        ),
        (
            container_config(
                mounts=[volume("/v"), pb.Mount(container_path="/h", host_path="/etc/passwd/x")]
            ),
            EngineError,
            "/etc/passwd/x",
        ),
    ],
)
async def test_of_a_container_that_cannot_be_made_nothing_stays(
    bench: Bench, config: pb.ContainerConfig, error: type[Exception], text: str
) -> None:
    sandbox = await bench.pod()
    await bench.told()
    with pytest.raises(error, match=text):
        await bench.containers.create(sandbox, config)
    assert not list(bench.inventory.containers)
    assert not bench.on_disk("containers")
    assert not list(bench.paths.bundles.iterdir())
    assert not bench.mounts()
    assert not list((bench.paths.images / "containers").iterdir())
    assert not await bench.told()
    # The name is free again.
    await bench.created(sandbox, name=config.metadata.name or "main")


async def test_a_record_that_cannot_be_written_undoes_the_bundle(bench: Bench) -> None:
    sandbox = await bench.pod()
    records = bench.paths.container_records
    records.rmdir()
    with pytest.raises(FileNotFoundError):
        await bench.created(sandbox, mounts=[volume("/v")])
    assert not list(bench.paths.bundles.iterdir())
    assert not bench.mounts()
    records.mkdir()
    await bench.created(sandbox)


async def test_a_name_is_held_by_one_container_of_a_sandbox(bench: Bench) -> None:
    first, second = await bench.pod(), await bench.pod(name="other")
    held = await bench.created(first)
    with pytest.raises(PreconditionError, match=held.id):
        await bench.created(first)
    await bench.created(second)
    await bench.created(first, name="beside")
    await bench.containers.remove(held)
    await bench.created(first)


async def test_a_stopped_sandbox_takes_no_container(bench: Bench) -> None:
    sandbox = await bench.pod()
    container = await bench.created(sandbox)
    await bench.sandboxes.stop(sandbox)
    with pytest.raises(PreconditionError, match=f"sandbox {sandbox.id} is not ready: run a new"):
        await bench.created(sandbox, name="second")
    with pytest.raises(PreconditionError, match=f"sandbox {sandbox.id} is not ready"):
        await bench.containers.start(container)
    assert container.record.stage is Stage.CREATED
    assert not bench.adapter.calls_of(container.id)


async def test_image_volumes_are_mounted_and_named(bench: Bench) -> None:
    sandbox = await bench.pod()
    mounts = [
        pb.Mount(container_path="/h", host_path="/usr", readonly=True),
        volume("/v"),
        volume("/w", image_sub_path="in"),
    ]
    container = await bench.created(sandbox, mounts=mounts)
    bundle = bench.paths.bundle(container.id)
    places = (str(bundle / "volumes/1"), str(bundle / "volumes/2"))
    assert container.record.image_mounts == places
    assert (bundle / "volumes/1/other").read_bytes() == b"o"
    assert (bundle / "volumes/2/file").read_bytes() == b"data"
    spec = json.loads((bundle / "config.json").read_text())
    sources = {each["destination"]: each["source"] for each in spec["mounts"]}
    assert (sources["/h"], sources["/v"], sources["/w"]) == ("/usr", *places)
    # The caller is shown what it asked for, and which image that was.
    shown = container_status(container).mounts
    data = bench.context.images.find(DATA).id
    assert [each.host_path for each in shown] == ["/usr", "", ""]
    assert [each.image.image_ref for each in shown] == ["", data, data]
    await bench.containers.remove(container)
    assert not bench.mounts()
    assert not bundle.exists()


async def test_a_container_joins_the_processes_of_its_target(bench: Bench) -> None:
    sandbox = await bench.pod()
    target = await bench.running(sandbox)
    options = pb.NamespaceOption(pid=pb.TARGET, target_id=target.id)
    container = await bench.created(sandbox, name="debug", options=options)
    spec = json.loads((bench.paths.bundle(container.id) / "config.json").read_text())
    assert {"type": "pid", "path": f"/proc/{target.record.pid}/ns/pid"} in spec["linux"][
        "namespaces"
    ]


async def test_a_start_is_on_record_before_the_runtime_is_asked(bench: Bench) -> None:
    sandbox = await bench.pod()
    container = await bench.created(sandbox)
    await bench.told()
    bench.adapter.gates["create"] = asyncio.Event()
    starting = asyncio.create_task(bench.containers.start(container))
    await settle()
    assert bench.on_disk("containers")[container.id]["stage"] == "starting"
    bench.clock.advance(5)
    bench.adapter.gates["create"].set()
    await starting
    assert bench.adapter.calls_of(container.id) == CREATED
    record = container.record
    assert (record.stage, record.pid) == (Stage.RUNNING, FIRST_PID)
    assert record.started_at_ns == START_NS + 5_000_000_000
    assert bench.on_disk("containers")[container.id]["pid"] == FIRST_PID
    assert await bench.told() == [("STARTED", container.id)]
    with pytest.raises(PreconditionError, match="is running: only a created one can be started"):
        await bench.containers.start(container)
    task = bench.adapter.tasks[container.id].task
    assert (task.sandbox_id, task.bundle) == (sandbox.id, bench.paths.bundle(container.id))


@pytest.mark.parametrize("call", ["create", "start"])
@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (AdapterError("no such command"), "no such command"),
        (OSError(13, "Permission denied", "/run/x"), "Permission denied"),
    ],
)
async def test_a_failed_start_is_undone_and_on_record(
    bench: Bench, call: str, failure: Exception, words: str
) -> None:
    container = await bench.created(await bench.pod())
    await bench.told()
    bench.adapter.failures[call] = failure
    expected = f"failed to start container '{container.id}': {words}"
    with pytest.raises(FailedError) as raised:
        await bench.containers.start(container)
    assert str(raised.value) == expected
    assert bench.adapter.calls_of(container.id)[-1] == "delete"
    assert not bench.adapter.tasks
    record = container.record
    assert (record.stage, record.exit) == (Stage.EXITED, Exit(128, START_NS))
    assert (record.reason, record.message) == ("StartError", expected)
    assert bench.on_disk("containers")[container.id]["reason"] == "StartError"
    assert await bench.told() == [("STOPPED", container.id)]


async def test_a_failed_start_that_cannot_be_undone_is_still_the_first_failure(
    bench: Bench,
) -> None:
    container = await bench.created(await bench.pod())
    bench.adapter.failures = {"start": AdapterError("first"), "delete": AdapterError("second")}
    with pytest.raises(FailedError, match="first"):
        await bench.containers.start(container)
    assert container.record.reason == "StartError"
    with pytest.raises(FailedError, match="cannot be removed: second"):
        await bench.containers.remove(container)
    assert bench.on_disk("containers").keys() == {container.id}
    bench.adapter.failures.clear()
    await bench.containers.remove(container)
    assert not bench.adapter.tasks
    assert not bench.on_disk("containers")


async def test_a_cancelled_start_is_undone(bench: Bench) -> None:
    container = await bench.created(await bench.pod())
    bench.adapter.gates["start"] = asyncio.Event()
    starting = asyncio.create_task(bench.containers.start(container))
    await settle()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert container.record.stage is Stage.EXITED
    assert not bench.adapter.tasks


@pytest.mark.parametrize(
    ("code", "is_out_of_memory", "reason"),
    [(0, False, "Completed"), (3, False, "Error"), (137, False, "Error"), (1, True, "OOMKilled")],
)
async def test_an_end_is_on_record_and_the_runtime_forgets(
    bench: Bench, code: int, is_out_of_memory: bool, reason: str
) -> None:
    container = await bench.running(await bench.pod())
    await bench.told()
    bench.end(container, code, is_out_of_memory=is_out_of_memory)
    await container.ended.wait()
    assert await bench.told() == [("STOPPED", container.id)]
    record = container.record
    assert (record.stage, record.reason, record.message) == (Stage.EXITED, reason, "")
    assert record.exit == Exit(code, FINISHED_NS, is_out_of_memory)
    assert bench.adapter.calls_of(container.id) == [*CREATED, "delete"]
    assert not container.is_running
    status = container_status(container)
    assert (status.exit_code, status.finished_at) == (code, FINISHED_NS)


async def test_no_container_ends_before_it_started(bench: Bench) -> None:
    container = await bench.created(await bench.pod())
    bench.clock.advance(60)
    await bench.containers.start(container)
    await settle()
    bench.end(container, 0)
    await container.ended.wait()
    assert container.record.exit == Exit(0, START_NS + 60_000_000_000)


@pytest.mark.parametrize(
    ("code", "where", "needs_sandbox", "reason"),
    [
        (137, "container", False, "OOMKilled"),
        (137, "container", True, "OOMKilled"),
        (143, "container", False, "Error"),
        (137, "sandbox", False, "Error"),
        (137, "sandbox", True, "OOMKilled"),
    ],
)
async def test_a_kill_by_the_kernel_is_found_in_the_cgroups(
    bench: Bench, code: int, where: str, needs_sandbox: bool, reason: str
) -> None:
    sandbox = await bench.pod()
    container = await bench.running(sandbox)
    bench.adapter.needs_sandbox = needs_sandbox
    its_id = container.id if where == "container" else sandbox.id
    cgroup = bench.cgroup(f"{PARENT}/{its_id}")
    cgroup.mkdir(parents=True)
    (cgroup / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    bench.end(container, code)
    await container.ended.wait()
    assert container.record.reason == reason
    assert bench.containers.cgroup(container) == f"{PARENT}/{container.id}"


async def test_a_stop_sends_the_containers_signal_and_waits(bench: Bench) -> None:
    container = await bench.running(await bench.pod())
    await bench.containers.stop(container, 60)
    assert container.record.exit == Exit(128 + signal.SIGUSR1, FINISHED_NS)
    assert bench.adapter.calls_of(container.id)[:3] == [*CREATED, ("kill", "SIGUSR1")]
    await settle()
    asked = len(bench.adapter.calls)
    await bench.containers.stop(container, 60)
    assert len(bench.adapter.calls) == asked


async def test_a_container_without_a_signal_of_its_own_gets_sigterm(bench: Bench) -> None:
    container = await bench.running(await bench.pod(), image=DATA, command=["/other"])
    await bench.containers.stop(container, 60)
    assert bench.adapter.calls_of(container.id)[2] == ("kill", "SIGTERM")


async def test_no_grace_is_sigkill_at_once(bench: Bench) -> None:
    container = await bench.running(await bench.pod())
    await bench.containers.stop(container, 0)
    assert bench.adapter.calls_of(container.id)[2] == ("kill", "SIGKILL")
    assert container.record.exit == Exit(137, FINISHED_NS)


@pytest.mark.slow
async def test_one_signal_for_several_stops_and_then_sigkill(bench: Bench) -> None:
    bench.adapter.is_obeying = False
    container = await bench.running(await bench.pod())
    await asyncio.gather(*(bench.containers.stop(container, 1) for _ in range(3)))
    kills = [each for each in bench.adapter.calls_of(container.id) if each[0] == "kill"]
    assert kills[0] == ("kill", "SIGUSR1")
    assert set(kills[1:]) == {("kill", "SIGKILL")}
    assert container.record.stage is Stage.EXITED


async def test_a_stop_waits_for_a_start_that_is_under_way(bench: Bench) -> None:
    container = await bench.created(await bench.pod())
    bench.adapter.gates["start"] = asyncio.Event()
    starting = asyncio.create_task(bench.containers.start(container))
    await settle()
    stopping = asyncio.create_task(bench.containers.stop(container, 0))
    await settle()
    assert not stopping.done()
    bench.adapter.gates["start"].set()
    await asyncio.gather(starting, stopping)
    assert container.record.exit == Exit(137, FINISHED_NS)


async def test_what_does_not_end_after_sigkill_is_an_error(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(life, "KILL_DEADLINE_S", 0.01)
    container = await bench.running(await bench.pod())
    bench.adapter.is_immortal = True
    with pytest.raises(TimeLimitError, match=r"does not end 0\.01 s after SIGKILL"):
        await bench.containers.stop(container, 0)
    with pytest.raises(TimeLimitError):
        await bench.containers.remove(container)
    assert container.is_running
    assert bench.on_disk("containers").keys() == {container.id}


async def test_a_signal_that_cannot_be_sent_is_an_error_unless_the_task_is_gone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = await bench.running(await bench.pod())
    bench.adapter.failures["kill"] = AdapterError("no way")
    with pytest.raises(FailedError, match=f"container '{container.id}' cannot be signalled: no"):
        await bench.containers.stop(container, 0)
    monkeypatch.setattr(life, "KILL_DEADLINE_S", 0.01)
    bench.adapter.failures["kill"] = TaskNotFoundError("gone")
    with pytest.raises(TimeLimitError):
        await bench.containers.stop(container, 0)
    bench.end(container, 9)
    await bench.containers.stop(container, 0)
    assert container.record.exit == Exit(9, FINISHED_NS)


async def test_a_removal_ends_what_runs_and_leaves_nothing(bench: Bench) -> None:
    sandbox = await bench.pod()
    container, beside = await bench.running(sandbox), await bench.running(sandbox, name="beside")
    await bench.told()
    await asyncio.gather(*(bench.containers.remove(container) for _ in range(2)))
    assert await bench.told() == [("STOPPED", container.id), ("DELETED", container.id)]
    assert container.id not in bench.adapter.tasks
    assert not bench.paths.bundle(container.id).exists()
    assert bench.on_disk("containers").keys() == {beside.id}
    assert list(bench.inventory.containers) == [beside]
    assert bench.mounts() == {f"b/{beside.id}/rootfs"}
    with pytest.raises(NotFoundError):
        bench.context.images.rootfs_layers(container.id)
    assert beside.is_running


async def test_another_engine_finds_the_records_as_they_were_left(
    bench: Bench, place: Path
) -> None:
    sandbox = await bench.pod()
    container = await bench.running(sandbox)
    ended = await bench.running(sandbox, name="ended")
    bench.end(ended, 4)
    await ended.ended.wait()
    async with make_bench(place, bench.adapter) as again:
        taken = again.inventory.containers.find(container.id)
        assert taken.record == container.record
        assert taken.config == container.config
        found = again.inventory.containers.find(ended.id)
        assert found.record == ended.record
        assert found.ended.is_set()
        again.end(taken, 6)
        await taken.ended.wait()
        assert taken.record.exit == Exit(6, FINISHED_NS)
