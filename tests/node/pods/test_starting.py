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
from moorage.node.config.errors import ConfigError
from moorage.node.metrics import Metrics
from moorage.node.options import NodeOptions
from moorage.node.paths import NodePaths
from moorage.node.pod_facts.containers import Kind, Member, members
from moorage.node.pod_facts.errors import SyncError
from moorage.node.pods import starting
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

CRI = CriError("m", grpc.StatusCode.UNKNOWN, "engine says no")


class Parts:
    """What a starter is made of: each call is kept, and fails when a test says so."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.answers: dict[str, Any] = {}
        self.events = FakeEvents()
        self.root = root
        defaults: dict[str, Any] = {
            "name": "n1", "root_dir": root, "container_logs_dir": root / "flat",
            "resolv_conf": None, "node_ip": "10.0.0.1",
        }  # fmt: skip
        part: Any = self
        self.starter = ContainerStarter(
            engine=part, observer=part, images=part, objects=part, services=part, hooks=part,
            events=self.events,  # type: ignore[arg-type]
            metrics=Metrics(), mounter=part, user_namespaces=part, clock=FakeClock(),
            options=NodeOptions(**(defaults | options)), paths=NodePaths(root, root / "logs"),
            security=part, memory_capacity_bytes=1 << 30,
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
    result: list[Any] = await parts.starter._pull_secrets(pod)
    assert result == ["secret"]
    assert [call[2:] for call in parts.calls] == [("shop", name) for name in names]
    assert parts.events.recorded == [
        "FailedToRetrieveImagePullSecret: Unable to retrieve some image pull secrets (none); "
        "attempting to pull the image may not succeed."
    ]


async def test_an_image_that_is_not_there_says_when_to_try_again(parts: Parts) -> None:
    launch = a_launch(parts)
    parts.answers["ensure"] = SyncError("ImagePullBackOff", "why", retry_s=7.0)
    with pytest.raises(SyncError) as failed:
        await parts.starter._image(launch, first(launch), ())
    assert (failed.value.reason, failed.value.message, failed.value.retry_s) == (
        "ImagePullBackOff", "why", 7.0
    )  # fmt: skip
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
    kinds = {volume["name"]: IMAGE if "image" in volume else "emptyDir" for volume in VOLUMES}
    for name, kind in kinds.items():
        launch.volumes[str(name)] = MountedVolume(str(name), kind, None)
    return launch


async def test_images_that_a_container_mounts_are_pulled(parts: Parts) -> None:
    launch = with_volumes(parts)
    parts.answers["ensure_image"] = SimpleNamespace(reference="sha256:1")
    images = await parts.starter._volume_images(launch, first(launch), ())
    assert {name: (image.image, image.user_specified_image) for name, image in images.items()} == {
        "tools": ("sha256:1", "tools:1"),
        "data": ("sha256:1", "data:1"),
    }
    assert [call[3:5] for call in parts.calls] == [
        ("tools:1", "IfNotPresent"), ("data:1", "Always")
    ]  # fmt: skip


async def test_a_volumes_image_that_is_not_there(parts: Parts) -> None:
    launch = with_volumes(parts)
    parts.answers["ensure_image"] = SyncError("ErrImagePull", "why", retry_s=3.0)
    with pytest.raises(SyncError, match="why") as failed:
        await parts.starter._volume_images(launch, first(launch), ())
    assert (failed.value.reason, failed.value.retry_s) == ("ErrImagePull", 3.0)
    assert parts.events.recorded == ["Failed: app: Error: ErrImagePull"]


@pytest.mark.parametrize(
    ("names", "count"),
    [((), 0), (("0.log",), 1), (("2.log", "0.log"), 3), (("x.log", "1.txt"), 0)],
)
async def test_logs_that_were_left_count_as_restarts(
    parts: Parts, names: tuple[str, ...], count: int
) -> None:
    launch = a_launch(parts)
    assert await parts.starter._restart_count(launch, first(launch)) == 0
    logs = parts.starter.paths.pod_logs("shop", "web", UID) / "app"
    logs.mkdir(parents=True)
    for name in names:
        (logs / name).touch()
    assert await parts.starter._restart_count(launch, first(launch)) == count


async def test_a_container_that_never_ran_is_made_again_under_its_number(parts: Parts) -> None:
    created = engine_has("app", State.CREATED, restarts=2)
    launch = a_launch(parts, view=a_view(created))
    assert await parts.starter._restart_count(launch, first(launch)) == 2
    assert parts.calls == [("remove_container", "app-2"), ("forget_container", "app-2")]
    parts.answers["remove_container"] = CRI
    with pytest.raises(SyncError, match="engine says no") as failed:
        await parts.starter._restart_count(launch, first(launch))
    assert failed.value.reason == "CreateContainerError"
    assert len(parts.calls) == 3
    ran = a_launch(parts, view=a_view(engine_has("app", restarts=2)))
    assert await parts.starter._restart_count(ran, first(ran)) == 3


CONFIG = pb.ContainerConfig(log_path="app/0.log")


async def test_a_container_is_created_beside_its_log(parts: Parts) -> None:
    launch = a_launch(parts)
    parts.answers["create_container"] = "c1"
    assert await parts.starter._create(launch, first(launch), CONFIG) == "c1"
    assert (parts.root / "pod-logs/app").is_dir()
    assert parts.calls == [("create_container", "s0", CONFIG, launch.sandbox_config)]
    assert parts.events.recorded == ["Created: app: Container created"]


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
    launch = a_launch(parts)
    parts.answers["create_container"] = error
    with pytest.raises(SyncError) as failed:
        await parts.starter._create(launch, first(launch), CONFIG)
    assert (failed.value.reason, failed.value.message) == (reason, message)
    assert parts.events.recorded == [f"Failed: app: Error: {message}"]


async def test_a_container_that_does_not_run_is_looked_at(parts: Parts) -> None:
    launch = a_launch(parts)
    await parts.starter._run(launch, first(launch), "c1")
    assert parts.names == ["start_container"]
    parts.answers["start_container"] = CRI
    with pytest.raises(SyncError, match="engine says no") as failed:
        await parts.starter._run(launch, first(launch), "c1")
    assert failed.value.reason == "RunContainerError"
    assert parts.calls[2:] == [("refresh_container", "c1", "s0")]
    assert parts.events.recorded == [
        "Started: app: Container started", "Failed: app: Error: engine says no"
    ]  # fmt: skip


async def test_failed_refresh_of_a_container_is_none(parts: Parts) -> None:
    launch = a_launch(parts)
    parts.answers["refresh_container"] = ["view", CRI]
    result: list[Any] = [
        await parts.starter._refresh_view(launch, first(launch), "c1") for _ in range(2)
    ]
    assert result == ["view", None]


def test_the_log_is_shown_under_its_flat_name(parts: Parts) -> None:
    launch = a_launch(parts)
    log = parts.root / "pod-logs/app/0.log"

    def link() -> None:
        parts.starter._link_log(launch.pod, first(launch), "c1", launch, CONFIG)

    link()
    assert not (parts.root / "flat").exists()
    log.parent.mkdir(parents=True)
    log.touch()
    for _ in range(2):
        link()
        made = list((parts.root / "flat").iterdir())
        assert [path.readlink() for path in made] == [log]
    assert made[0].name == "web_shop_app-c1.log"
    without = Parts(parts.root / "other", container_logs_dir=None)
    without.starter._link_log(launch.pod, first(launch), "c1", launch, CONFIG)
    assert not (parts.root / "other").exists()
    made[0].unlink()
    (parts.root / "flat").rmdir()
    (parts.root / "flat").write_text("in the way")
    link()


@pytest.mark.parametrize(
    ("ips", "address"), [(("10.1.0.5", "fd00::5"), "10.1.0.5"), ((), "10.0.0.1")]
)
async def test_failed_hook_is_reported_with_the_container(
    parts: Parts, ips: tuple[str, ...], address: str
) -> None:
    hook = {"exec": {"command": ["x"]}}
    pod = a_pod(wire_container(lifecycle={"postStart": hook}))
    launch = a_launch(parts, pod, sandbox=a_sandbox(ips=ips))
    member, container = first(launch), engine_has()
    await parts.starter._post_start(launch, member, "c1", container)
    assert [call[3] for call in parts.calls] == ["c1"]
    assert parts.calls[0][-1] == address
    parts.answers["run"] = HookError("secret words")
    with pytest.raises(HookFailedError, match="secret words") as failed:
        await parts.starter._post_start(launch, member, "c1", container)
    assert failed.value.container is container
    assert parts.events.recorded == ["FailedPostStartHook: app: PostStartHook failed"]


@pytest.mark.parametrize("lifecycle", [None, {"preStop": {"exec": {"command": ["x"]}}}])
async def test_without_a_hook_nothing_runs(parts: Parts, lifecycle: Any) -> None:
    launch = a_launch(parts, a_pod(wire_container(lifecycle=lifecycle)))
    await parts.starter._post_start(launch, first(launch), "c1", None)
    assert parts.calls == []


def test_the_hosts_file_is_the_pods_or_the_machines(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "HOSTS_PATH", str(parts.root / "etc-hosts"))
    (parts.root / "etc-hosts").write_text("127.0.0.1 machine\n")
    paths = parts.starter.paths.pod(UID)
    mount = parts.starter._hosts(a_launch(parts), paths)
    assert (mount.host_path, mount.selinux_relabel) == (str(paths.hosts_file), True)
    text = paths.hosts_file.read_text()
    assert "10.1.0.5\tweb" in text
    assert "machine" not in text
    assert paths.hosts_file.stat().st_mode & 0o777 == 0o644
    before = paths.hosts_file.stat().st_ino
    aliases = [{"ip": "1.2.3.4", "hostnames": ["x"]}]
    parts.starter._hosts(a_launch(parts, a_pod(hostNetwork=True, hostAliases=aliases)), paths)
    text = paths.hosts_file.read_text()
    assert "127.0.0.1 machine\n" in text
    assert "1.2.3.4\tx" in text
    assert paths.hosts_file.stat().st_ino == before


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
def test_nothing_is_mounted_over_the_hosts_files_in_a_bidirectional_mount(
    parts: Parts, volume_path: str, propagation: str | None, wanted: list[str]
) -> None:
    mount = {"name": "host", "mountPath": volume_path, "mountPropagation": propagation}
    container = wire_container(volumeMounts=[mount], terminationMessagePath="/dev/termination-log")
    launch = a_launch(parts, a_pod(container))
    launch.volumes["host"] = MountedVolume("host", HOST_PATH, parts.root)
    mounts = parts.starter._mounts(launch, first(launch), {}, {})
    assert [mount.container_path for mount in mounts] == wanted


def an_ephemeral(**fields: Any) -> Member:
    container = msgspec.convert({"name": "debug", "image": "i", **fields}, EphemeralContainer)
    return Member(Kind.EPHEMERAL, container)


def test_an_ephemeral_container_sees_the_processes_of_its_target(parts: Parts) -> None:
    launch = a_launch(parts, view=a_view(engine_has("app")))
    assert starting._target(launch, first(launch)) is None
    assert starting._target(launch, an_ephemeral()) is None
    assert starting._target(launch, an_ephemeral(targetContainerName="app")) == "app-0"
    with pytest.raises(ConfigError, match="unable to find target container x"):
        starting._target(launch, an_ephemeral(targetContainerName="x"))


@pytest.mark.parametrize("path", ["/dev/termination-log", "dev/termination-log"])
def test_anyone_may_write_the_termination_message(tmp_path: Path, path: str) -> None:
    mount = starting._message_file(tmp_path / "d", path)
    file = Path(mount.host_path)
    assert mount.container_path == "/dev/termination-log"
    assert (file.parent, file.stat().st_mode & 0o777, file.read_bytes()) == (
        tmp_path / "d", 0o666, b""
    )  # fmt: skip
    again = starting._message_file(tmp_path / "d", path)
    assert again.host_path != mount.host_path


def test_a_file_of_variables_is_read_inside_its_volume(tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    (tmp_path / "v/env").write_bytes(b"A=\xff\n")
    (tmp_path / "v/d").mkdir()
    volumes = {
        "v": MountedVolume("v", "emptyDir", tmp_path / "v"), "i": MountedVolume("i", IMAGE, None)
    }  # fmt: skip
    assert starting._env_file(volumes, "v", "env") == "A=\ufffd\n"
    for name in ("x", "i"):
        with pytest.raises(ConfigError, match=f'cannot find the volume "{name}"'):
            starting._env_file(volumes, name, "env")
    with pytest.raises(ConfigError, match='couldn\'t read env file "d": Is a directory'):
        starting._env_file(volumes, "v", "d")


async def test_a_failed_start_is_counted_by_its_reason(parts: Parts) -> None:
    launch = a_launch(parts)
    parts.answers["ensure"] = SyncError("ErrImagePull", "why")
    with pytest.raises(SyncError):
        await parts.starter.start(launch, first(launch))
    metrics = parts.starter.metrics
    kinds = (metrics.started_containers, metrics.started_containers_errors)
    assert [line for kind in kinds for line in kind.lines()] == [
        'kubelet_started_containers_total{container_type="container"} 1',
        'kubelet_started_containers_errors_total{container_type="container",code="ErrImagePull"} 1',
    ]
