"""The steps of a container's start, one at a time, and what each says when it fails."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import msgspec
import pytest

from moorage.api.containers import EphemeralContainer
from moorage.api.errors import StatusError
from moorage.node.config.security import ImageUser, SecurityDefaults
from moorage.node.images.pulling import FoundImage
from moorage.node.metrics import Metrics
from moorage.node.options import NodeOptions
from moorage.node.paths import NodePaths
from moorage.node.pod_facts.containers import Kind, Member, members
from moorage.node.pod_facts.errors import SyncError
from moorage.node.pods.hooks import HookError
from moorage.node.pods.start_timeline import StartTimeline
from moorage.node.pods.starting import ContainerStarter, HookFailedError, Launch
from moorage.node.runtime.views import PodView, SandboxView, State
from moorage.node.volumes.kinds import HOST_PATH, IMAGE, MountedVolume
from moorage.wire.client.rest import UnreachableError
from moorage.wire.cri import CriError, pb
from tests.clocks import FakeClock
from tests.node.objects import UID, WHERE, a_pod, a_sandbox, a_view, engine_has, wire_container
from tests.node.pods.lives import FakeEvents

MACHINES_HOSTS = Path("/etc/hosts").read_text()
CRI = CriError("m", grpc.StatusCode.UNKNOWN, "engine says no")


class FakeServices(list[Any]):
    """An informer of no services."""

    async def wait_synced(self) -> None:
        """The list is complete."""


class Parts:
    """What a starter is made of: each call is kept, and fails when a test says so."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.answers: dict[str, Any] = {
            "ensure": FoundImage("image:1", ImageUser(0)), "create_container": "c1"
        }  # fmt: skip
        self.events = FakeEvents()
        self.root = root
        defaults: dict[str, Any] = {
            "name": "n1", "root_dir": root, "container_logs_dir": root / "flat",
            "resolv_conf": None, "node_ip": "10.0.0.1",
        }  # fmt: skip
        part: Any = self
        self.starter = ContainerStarter(
            engine=part, observer=part, images=part, objects=part,
            services=FakeServices(),  # type: ignore[arg-type]
            hooks=part,
            events=self.events,  # type: ignore[arg-type]
            metrics=Metrics(), mounter=part, user_namespaces=part, clock=FakeClock(),
            options=NodeOptions(**(defaults | options)), paths=NodePaths(root, root / "logs"),
            security=SecurityDefaults(seccomp_dir=root / "seccomp"), memory_capacity_bytes=1 << 30,
        )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **_: Any) -> Any:
            self.calls.append((name, *arguments))
            answer = self.answers.get(name)
            if isinstance(answer, list):
                answer = answer.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def forget_container(self, container_id: str) -> None:
        self.calls.append(("forget_container", container_id))

    @property
    def names(self) -> list[str]:
        return [call[0] for call in self.calls]

    def made(self, name: str) -> list[tuple[Any, ...]]:
        """Return the arguments of the calls of a name."""
        return [call[1:] for call in self.calls if call[0] == name]

    async def start(self, launch: Launch, member: Member | None = None) -> pb.ContainerConfig:
        """Start a container, and return the configuration that the engine was given."""
        await self.starter.start(launch, member or first(launch))
        config: pb.ContainerConfig = self.made("create_container")[-1][1]
        return config

    async def failed(self, launch: Launch, member: Member | None = None) -> SyncError:
        with pytest.raises(SyncError) as failed:
            await self.start(launch, member)
        return failed.value


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    return Parts(tmp_path)


def a_launch(
    parts: Parts, pod: Any = None, view: PodView | None = None, sandbox: SandboxView | None = None
) -> Launch:
    config = pb.PodSandboxConfig(log_directory=str(parts.root / "pod-logs"))
    return Launch(
        pod=pod or a_pod(), view=view or a_view(), sandbox=sandbox or a_sandbox(),
        sandbox_config=config, volumes={}, where=WHERE, has_recursive_read_only=False,
        timeline=StartTimeline(pod or a_pod(), FakeClock()),
    )  # fmt: skip


def first(launch: Launch) -> Member:
    return next(iter(members(launch.pod.spec)))


async def test_missing_pull_secrets_do_not_prevent_a_start(parts: Parts) -> None:
    names = ("away", "refused", "none", "there")
    pod = a_pod(imagePullSecrets=[{"name": name} for name in names])
    parts.answers["get"] = [UnreachableError("away"), StatusError("why"), None, "secret"]
    await parts.start(a_launch(parts, pod))
    assert parts.made("ensure")[0][2] == ["secret"]
    assert [call[1:] for call in parts.made("get")] == [("shop", name) for name in names]
    assert parts.events.recorded[0] == (
        "FailedToRetrieveImagePullSecret: Unable to retrieve some image pull secrets (none); "
        "attempting to pull the image may not succeed."
    )


async def test_an_image_that_is_not_there_says_when_to_try_again(parts: Parts) -> None:
    parts.answers["ensure"] = SyncError("ImagePullBackOff", "why", retry_s=7.0)
    error = await parts.failed(a_launch(parts))
    assert (error.reason, error.message, error.retry_s) == ("ImagePullBackOff", "why", 7.0)
    assert parts.events.recorded == ["Failed: app: Error: ImagePullBackOff"]


VOLUMES = [
    {"name": "tools", "image": {"reference": "tools:1"}},
    {"name": "data", "image": {"reference": "data:1", "pullPolicy": "Always"}},
    {"name": "unused", "image": {"reference": "unused:1"}},
    {"name": "empty", "emptyDir": {}},
]


def with_volumes(parts: Parts) -> Launch:
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("tools", "data", "empty")]
    launch = a_launch(parts, a_pod(wire_container(volumeMounts=mounts), volumes=VOLUMES))
    for volume in VOLUMES:
        name = str(volume["name"])
        launch.volumes[name] = (
            MountedVolume(name, IMAGE, None)
            if "image" in volume
            else MountedVolume(name, "emptyDir", parts.root)
        )
    return launch


async def test_images_that_a_container_mounts_are_pulled(parts: Parts) -> None:
    parts.answers["ensure_image"] = SimpleNamespace(reference="sha256:1")
    config = await parts.start(with_volumes(parts))
    images = {mount.container_path: mount.image for mount in config.mounts}
    assert {
        path: (image.image, image.user_specified_image)
        for path, image in images.items()
        if image.image
    } == {"/tools": ("sha256:1", "tools:1"), "/data": ("sha256:1", "data:1")}
    assert [call[2:4] for call in parts.made("ensure_image")] == [
        ("tools:1", "IfNotPresent"), ("data:1", "Always")
    ]  # fmt: skip


async def test_a_volumes_image_that_is_not_there(parts: Parts) -> None:
    parts.answers["ensure_image"] = SyncError("ErrImagePull", "why", retry_s=3.0)
    error = await parts.failed(with_volumes(parts))
    assert (error.message, error.reason, error.retry_s) == ("why", "ErrImagePull", 3.0)
    assert parts.events.recorded == ["Failed: app: Error: ErrImagePull"]


@pytest.mark.parametrize(
    ("names", "count"),
    [((), 0), (("0.log",), 1), (("2.log", "0.log"), 3), (("x.log", "1.txt"), 0)],
)
async def test_logs_that_were_left_count_as_restarts(
    parts: Parts, names: tuple[str, ...], count: int
) -> None:
    assert (await parts.start(a_launch(parts))).metadata.attempt == 0
    logs = parts.starter.paths.pod_logs("shop", "web", UID) / "app"
    logs.mkdir(parents=True)
    for name in names:
        (logs / name).touch()
    assert (await parts.start(a_launch(parts))).metadata.attempt == count


async def test_a_container_that_never_ran_is_made_again_under_its_number(parts: Parts) -> None:
    created = engine_has("app", State.CREATED, restarts=2)
    launch = a_launch(parts, view=a_view(created))
    assert (await parts.start(launch)).metadata.attempt == 2
    assert parts.names[1:4] == ["remove_container", "forget_container", "create_container"]
    assert parts.made("remove_container") == parts.made("forget_container") == [("app-2",)]
    parts.answers["remove_container"] = CRI
    error = await parts.failed(launch)
    assert (error.reason, error.message) == ("CreateContainerError", "engine says no")
    assert (len(parts.made("forget_container")), len(parts.made("create_container"))) == (1, 1)
    ran = a_launch(parts, view=a_view(engine_has("app", restarts=2)))
    assert (await parts.start(ran)).metadata.attempt == 3


async def test_a_container_is_created_beside_its_log(parts: Parts) -> None:
    launch = a_launch(parts)
    config = await parts.start(launch)
    assert (parts.root / "pod-logs/app").is_dir()
    assert config.log_path == "app/0.log"
    assert parts.made("create_container") == [("s0", config, launch.sandbox_config)]
    assert parts.made("start_container") == [("c1",)]
    assert parts.events.recorded == [
        "Created: app: Container created", "Started: app: Container started"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "reason", "message"),
    [
        (CRI, "CreateContainerError", "engine says no"),
        (
            OSError(28, "disk full"),
            "CreateContainerConfigError",
            "create container log directory for container app failed: [Errno 28] disk full",
        ),
    ],
)
async def test_failed_creation_is_reported_with_its_reason(
    parts: Parts, error: Exception, reason: str, message: str
) -> None:
    parts.answers["create_container"] = error
    failed = await parts.failed(a_launch(parts))
    assert (failed.reason, failed.message) == (reason, message)
    assert parts.events.recorded == [f"Failed: app: Error: {message}"]


@pytest.mark.parametrize("view", ["view", CRI])
async def test_a_container_that_does_not_run_is_looked_at(parts: Parts, view: object) -> None:
    parts.answers["start_container"], parts.answers["refresh_container"] = CRI, view
    error = await parts.failed(a_launch(parts))
    assert (error.reason, error.message) == ("RunContainerError", "engine says no")
    assert parts.made("refresh_container") == [("c1", "s0")]
    assert parts.events.recorded[1:] == ["Failed: app: Error: engine says no"]


async def test_the_log_is_shown_under_its_flat_name(parts: Parts) -> None:
    launch = a_launch(parts)
    log = parts.root / "pod-logs/app/0.log"
    await parts.start(launch)
    assert not (parts.root / "flat").exists()
    log.touch()
    for _ in range(2):
        await parts.start(launch)
        made = list((parts.root / "flat").iterdir())
        assert [path.readlink() for path in made] == [log]
        # An earlier agent's link may name another file.
        made[0].unlink()
        made[0].symlink_to("elsewhere")
    assert made[0].name == "web_shop_app-c1.log"
    without = Parts(parts.root / "other", container_logs_dir=None)
    await without.start(launch)
    assert not (parts.root / "other/flat").exists()
    made[0].unlink()
    (parts.root / "flat").rmdir()
    (parts.root / "flat").write_text("in the way")
    await parts.start(launch)


@pytest.mark.parametrize(
    ("ips", "address"), [(("10.1.0.5", "fd00::5"), "10.1.0.5"), ((), "10.0.0.1")]
)
async def test_failed_hook_is_reported_with_the_container(
    parts: Parts, ips: tuple[str, ...], address: str
) -> None:
    hook = {"exec": {"command": ["x"]}}
    pod = a_pod(wire_container(lifecycle={"postStart": hook}))
    launch, container = a_launch(parts, pod, sandbox=a_sandbox(ips=ips)), engine_has()
    parts.answers["refresh_container"] = container
    await parts.start(launch)
    ((_, _, container_id, _, *rest),) = parts.made("run")
    assert (container_id, rest) == ("c1", [address])
    parts.answers["run"] = HookError("secret words")
    failed = await parts.failed(launch)
    assert isinstance(failed, HookFailedError)
    assert "secret words" in failed.message
    assert failed.container is container
    assert parts.events.recorded[-1] == "FailedPostStartHook: app: PostStartHook failed"


@pytest.mark.parametrize("lifecycle", [None, {"preStop": {"exec": {"command": ["x"]}}}])
async def test_without_a_hook_nothing_runs(parts: Parts, lifecycle: Any) -> None:
    await parts.start(a_launch(parts, a_pod(wire_container(lifecycle=lifecycle))))
    assert parts.made("run") == []


async def test_the_hosts_file_is_the_pods_or_the_machines(parts: Parts) -> None:
    file = parts.starter.paths.pod(UID).hosts_file
    (mount, *_) = (await parts.start(a_launch(parts))).mounts
    assert (mount.host_path, mount.container_path, mount.selinux_relabel) == (
        str(file), "/etc/hosts", True
    )  # fmt: skip
    text = file.read_text()
    assert "10.1.0.5\tweb" in text
    assert MACHINES_HOSTS not in text
    assert file.stat().st_mode & 0o777 == 0o644
    before = file.stat().st_ino
    aliases = [{"ip": "1.2.3.4", "hostnames": ["x"]}]
    await parts.start(a_launch(parts, a_pod(hostNetwork=True, hostAliases=aliases)))
    text = file.read_text()
    assert MACHINES_HOSTS in text
    assert "1.2.3.4\tx" in text
    assert file.stat().st_ino == before


@pytest.mark.parametrize(
    ("volume_path", "propagation", "wanted"),
    [
        ("/etc", "Bidirectional", ["/etc", "/dev/termination-log"]),
        ("//etc/.", "Bidirectional", ["//etc/.", "/dev/termination-log"]),
        ("/dev", "Bidirectional", ["/dev", "/etc/hosts"]),
        ("/etcetera", "Bidirectional", ["/etcetera", "/etc/hosts", "/dev/termination-log"]),
        ("/etc", "HostToContainer", ["/etc", "/etc/hosts", "/dev/termination-log"]),
        ("/etc/hosts", None, ["/etc/hosts", "/dev/termination-log"]),
    ],
)
async def test_nothing_is_mounted_over_the_hosts_files_in_a_bidirectional_mount(
    parts: Parts, volume_path: str, propagation: str | None, wanted: list[str]
) -> None:
    mount = {"name": "host", "mountPath": volume_path, "mountPropagation": propagation}
    container = wire_container(volumeMounts=[mount], terminationMessagePath="/dev/termination-log")
    launch = a_launch(parts, a_pod(container))
    launch.volumes["host"] = MountedVolume("host", HOST_PATH, parts.root)
    assert [each.container_path for each in (await parts.start(launch)).mounts] == wanted


def an_ephemeral(**fields: Any) -> Member:
    container = msgspec.convert({"name": "debug", "image": "i", **fields}, EphemeralContainer)
    return Member(Kind.EPHEMERAL, container)


async def test_an_ephemeral_container_sees_the_processes_of_its_target(parts: Parts) -> None:
    launch = a_launch(parts, view=a_view(engine_has("app")))
    debug = an_ephemeral(targetContainerName="app")
    configs = [await parts.start(launch, member) for member in (None, an_ephemeral(), debug)]
    assert [
        config.linux.security_context.namespace_options.target_id for config in configs
    ] == ["", "", "app-0"]  # fmt: skip
    error = await parts.failed(launch, an_ephemeral(targetContainerName="x"))
    assert error.message == "unable to find target container x"


def facts_of(file: Path) -> tuple[int, bytes]:
    return file.stat().st_mode & 0o777, file.read_bytes()


@pytest.mark.parametrize("path", ["/dev/termination-log", "dev/termination-log"])
async def test_anyone_may_write_the_termination_message(parts: Parts, path: str) -> None:
    launch = a_launch(parts, a_pod(wire_container(terminationMessagePath=path)))
    mounts = [(await parts.start(launch)).mounts[-1] for _ in range(2)]
    file = Path(mounts[0].host_path)
    assert mounts[0].container_path == "/dev/termination-log"
    assert file.parent == parts.starter.paths.pod(UID).container("app")
    assert facts_of(file) == (0o666, b"")
    assert mounts[0].host_path != mounts[1].host_path


async def test_a_file_of_variables_is_read_inside_its_volume(parts: Parts) -> None:
    (parts.root / "v").mkdir()
    (parts.root / "v/env").write_bytes(b"A='\xff'\n")
    (parts.root / "v/d").mkdir()

    def with_key(volume: str, path: str) -> Launch:
        source = {"fileKeyRef": {"volumeName": volume, "path": path, "key": "A"}}
        launch = a_launch(parts, a_pod(wire_container(env=[{"name": "B", "valueFrom": source}])))
        launch.volumes["v"] = MountedVolume("v", "emptyDir", parts.root / "v")
        launch.volumes["i"] = MountedVolume("i", IMAGE, None)
        return launch

    config = await parts.start(with_key("v", "env"))
    assert {env.key: env.value for env in config.envs}["B"].decode() == "\ufffd"
    for name in ("x", "i"):
        error = await parts.failed(with_key(name, "env"))
        assert error.reason == "CreateContainerConfigError"
        assert f'cannot find the volume "{name}"' in error.message
    error = await parts.failed(with_key("v", "d"))
    assert 'couldn\'t read env file "d": Is a directory' in error.message


async def test_a_failed_start_is_counted_by_its_reason(parts: Parts) -> None:
    parts.answers["ensure"] = SyncError("ErrImagePull", "why")
    await parts.failed(a_launch(parts))
    metrics = parts.starter.metrics
    kinds = (metrics.started_containers, metrics.started_containers_errors)
    assert [line for kind in kinds for line in kind.lines()] == [
        'kubelet_started_containers_total{container_type="container"} 1',
        'kubelet_started_containers_errors_total{container_type="container",code="ErrImagePull"} 1',
    ]
