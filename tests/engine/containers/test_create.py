"""CreateContainer on real directories: bundles, records, names, image volumes, cleanup."""

from __future__ import annotations

import json
import os

import msgspec
import pytest

from moorage.engine.containers.bundle import create_container, image_tag
from moorage.engine.containers.lifecycle import remove_container, start_container
from moorage.engine.errors import EngineError, InvalidError, NotFoundError, PreconditionError
from moorage.engine.messages import container_status
from moorage.engine.records import Stage, User
from moorage.engine.sandboxes.stop import stop_pod_sandbox
from moorage.wire.cri import pb
from tests.clocks import START_NS
from tests.engine.parts import ABSENT, APP, DATA, Bench, bench, container_config, place, pod_config

__all__ = ["bench", "place"]


def volume(path: str, **fields: object) -> pb.Mount:
    options = {"readonly": True, "image": pb.ImageSpec(image=DATA), **fields}
    return pb.Mount(container_path=path, **options)  # type: ignore[arg-type]


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
    container = await create_container(bench.context, await bench.pod(), config)
    named = container_status(container).image
    assert named.image == (image.id if shown == "the id" else shown)
    assert named.user_specified_image == asked


async def test_the_tag_that_was_asked_for_comes_before_the_others(bench: Bench) -> None:
    image = bench.context.images.find(APP)
    both = msgspec.structs.replace(image, tags=("localhost/a:1", APP))
    assert image_tag(container_config(image=APP), both) == APP
    assert image_tag(container_config(image=image.id), both) == "localhost/a:1"


async def test_a_container_is_a_bundle_and_a_record(bench: Bench) -> None:
    sandbox = await bench.pod()
    await bench.new_events()
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
    assert await bench.new_events() == [("CREATED", container.id)]
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
async def test_failed_creation_leaves_nothing(
    bench: Bench, config: pb.ContainerConfig, error: type[Exception], text: str
) -> None:
    sandbox = await bench.pod()
    await bench.new_events()
    with pytest.raises(error, match=text):
        await create_container(bench.context, sandbox, config)
    assert not list(bench.inventory.containers)
    assert not bench.on_disk("containers")
    assert not list(bench.paths.bundles.iterdir())
    assert not bench.mounts()
    assert not list((bench.paths.images / "containers").iterdir())
    assert not await bench.new_events()
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
    await remove_container(bench.context, held)
    await bench.created(first)


async def test_a_stopped_sandbox_takes_no_container(bench: Bench) -> None:
    sandbox = await bench.pod()
    container = await bench.created(sandbox)
    await stop_pod_sandbox(bench.context, sandbox)
    with pytest.raises(PreconditionError, match=f"sandbox {sandbox.id} is not ready: run a new"):
        await bench.created(sandbox, name="second")
    with pytest.raises(PreconditionError, match=f"sandbox {sandbox.id} is not ready"):
        await start_container(bench.context, container)
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
    sources = {mount["destination"]: mount["source"] for mount in spec["mounts"]}
    assert (sources["/h"], sources["/v"], sources["/w"]) == ("/usr", *places)
    # The caller is shown what it asked for, and which image that was.
    shown = container_status(container).mounts
    data = bench.context.images.find(DATA).id
    assert [mount.host_path for mount in shown] == ["/usr", "", ""]
    assert [mount.image.image_ref for mount in shown] == ["", data, data]
    await remove_container(bench.context, container)
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


async def test_the_request_says_whether_its_container_may_be_privileged(bench: Bench) -> None:
    """A debug container may be privileged in a pod that was not when its sandbox was made."""
    sandbox = await bench.pod()
    config = container_config()
    config.linux.security_context.privileged = True
    asked = pod_config()
    for allowed in (None, asked):
        with pytest.raises(InvalidError, match="no privileged container allowed in sandbox"):
            await create_container(bench.context, sandbox, config, allowed)
    asked.linux.security_context.privileged = True
    container = await create_container(bench.context, sandbox, config, asked)
    assert container.record.sandbox_id == sandbox.id
