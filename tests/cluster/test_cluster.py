"""The Cluster object: what it starts it stops, also when a start fails or is cancelled."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import moorage.cluster
from moorage.cluster import (
    AlreadyRunningError,
    CannotRunPodsError,
    Choices,
    Cluster,
    ClusterError,
    NotRunningError,
    Settings,
    SettingsError,
    StartError,
)
from moorage.cluster.cluster import READY_S, ClusterActions, HostCheck
from moorage.cluster.completion import complete
from moorage.cluster.layout import Layout
from moorage.cluster.reservations import Reservations
from moorage.cluster.settings import load, save
from moorage.wire.client.resources import CONFIG_MAPS
from tests.cli.moor import locked
from tests.cluster.test_settings import SETTINGS
from tests.ports import free_port

# With a port that clusters of other tests do not take while one is down.
PLANE = Choices(has_node=False, api_port=free_port())


class Steps(ClusterActions):
    """The steps of a start and a stop, in their order; `failure` ends the start."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.reserved: list[int] = []
        self.failure: BaseException | None = None
        self.checked: list[Any] = []
        self.missing = ""
        self.forgotten: list[Path] = []
        self.became: list[tuple[Layout, Reservations, str]] = []

    async def require_machine(self, layout: Layout, **options: Any) -> Any:
        if self.missing:
            raise CannotRunPodsError(self.missing)
        self.checked.append((layout.root, options))
        return ("runc",)

    async def start_supervisor(
        self, layout: Layout, within_s: float, reservations: Reservations | None
    ) -> None:
        assert (layout.settings.is_file(), within_s) == (True, READY_S)
        self.steps.append("start")
        self.reserved.append(len(reservations.descriptors) if reservations else 0)
        if self.failure is not None:
            raise self.failure

    def become_supervisor(
        self, layout: Layout, reservations: Reservations, merged_into: str
    ) -> None:
        self.became.append((layout, reservations, merged_into))

    async def stop_supervisor(self, layout: Layout) -> bool:
        assert layout.settings.is_file()
        self.steps.append("stop")
        return True

    async def clear_host(self, layout: Layout, settings: Settings, *, abandons_pods: bool) -> None:
        assert settings == load(layout.settings)
        self.steps.append("abandon" if abandons_pods else "clear")

    def forget(self, directory: Path) -> None:
        self.forgotten.append(directory)


@pytest.fixture
def steps() -> Steps:
    return Steps()


async def test_a_cluster_is_created_started_stopped_and_deleted(
    steps: Steps, tmp_path: Path
) -> None:
    async with Cluster(tmp_path / "c", PLANE, actions=steps) as cluster:
        assert steps.steps == ["start"]
        assert cluster.find_settings() == cluster.settings
        assert cluster.settings.name == "moorage"
        assert cluster.kubeconfig.is_file()
        assert cluster.access.server == cluster.settings.server
    assert steps.steps == ["start", "stop", "clear"]
    assert cluster.find_settings() is not None
    cluster.delete()
    assert not cluster.directory.exists()
    assert cluster.find_settings() is None


def test_a_deleted_cluster_gives_its_user_ids_back(steps: Steps, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "c", PLANE, actions=steps)
    cluster.create()
    cluster.delete()
    assert steps.forgotten == [tmp_path / "c" / "node" / "pods"]


def test_outside_an_event_loop_a_plain_block_does_the_same(steps: Steps, tmp_path: Path) -> None:
    with Cluster(tmp_path / "c", PLANE, actions=steps) as cluster:
        assert cluster.settings.has_node is False
    assert steps.steps == ["start", "stop", "clear"]


async def test_each_start_reserves_its_ports(steps: Steps, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "c", PLANE, actions=steps)
    for _ in range(2):
        await cluster.start()
        # The supervisor has inherited them.
        assert not is_reserved(cluster)
    assert len(steps.reserved) == 2
    assert all(steps.reserved)


async def test_pods_can_be_kept_or_abandoned(steps: Steps, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "c", PLANE, actions=steps)
    cluster.create()
    assert await cluster.stop(keeps_pods=True)
    assert steps.steps == ["stop"]
    await cluster.stop(abandons_pods=True)
    assert steps.steps == ["stop", "stop", "abandon"]


@pytest.mark.parametrize(
    "failure", [StartError("why"), StartError("why", has_ended=False), asyncio.CancelledError()]
)
async def test_a_start_that_fails_leaves_nothing(
    steps: Steps, tmp_path: Path, failure: BaseException
) -> None:
    steps.failure = failure
    with pytest.raises(type(failure)):
        async with Cluster(tmp_path / "c", PLANE, actions=steps):
            raise AssertionError
    assert steps.steps == ["start", "stop", "clear"]


async def test_a_cluster_that_another_process_started_meanwhile_is_left_alone(
    steps: Steps, tmp_path: Path
) -> None:
    steps.failure = StartError("the other was faster")
    cluster = Cluster(tmp_path / "c", PLANE, actions=steps)
    cluster.create()
    with locked(cluster.layout), pytest.raises(StartError, match="faster"):
        await cluster.__aenter__()
    assert steps.steps == ["start"]


async def test_a_cluster_that_runs_is_not_started_again_nor_stopped(
    steps: Steps, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path / "c", PLANE, actions=steps)
    cluster.create()
    with locked(cluster.layout) as pid:
        assert cluster.pid == pid
        assert cluster.running_settings() == cluster.settings
        with pytest.raises(AlreadyRunningError):
            await Cluster(cluster.directory, PLANE, actions=steps).__aenter__()
    assert steps.steps == []


def test_a_directory_without_a_cluster_is_not_running(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with pytest.raises(NotRunningError, match="there is no cluster in"):
        _ = cluster.settings
    with pytest.raises(NotRunningError, match="there is no cluster in"):
        asyncio.run(cluster.stop())
    save(cluster.layout.settings, SETTINGS)
    with pytest.raises(NotRunningError, match="is not running; `moor up` resumes it"):
        cluster.running_settings()
    assert cluster.parts == ()


def test_a_directory_with_other_files_is_neither_used_nor_deleted(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    cluster = Cluster(tmp_path, PLANE)
    for action in (cluster.create, cluster.delete):
        with pytest.raises(SettingsError, match=r"is not empty \(thesis\.tex\)"):
            action()
    assert (tmp_path / "thesis.tex").exists()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    class Full(ClusterActions):
        def open_cluster(self, *_: object) -> Settings:
            raise OSError(28, "disk full")

    with pytest.raises(ClusterError, match="/c cannot be used for a cluster: disk full; choose"):
        Cluster(tmp_path / "c", PLANE, actions=Full()).create()


@pytest.mark.parametrize(
    "error", [OSError(28, "disk full"), SettingsError("no"), KeyboardInterrupt()]
)
def test_what_a_failed_creation_reserved_is_released(tmp_path: Path, error: BaseException) -> None:
    taken: list[Reservations] = []

    class Failing(ClusterActions):
        def open_cluster(
            self, layout: Layout, _choices: Choices, reservations: Reservations
        ) -> Settings:
            assert reservations.take(f"test/{layout.root}")
            taken.append(reservations)
            raise error

    cluster = Cluster(tmp_path / "c", PLANE, actions=Failing())
    with pytest.raises((ClusterError, KeyboardInterrupt)):
        cluster.create()
    assert [reservations.descriptors for reservations in taken] == [()]


def test_clients_name_themselves(tmp_path: Path) -> None:
    opened: list[tuple[Path, str]] = []

    class Opening(ClusterActions):
        def open_client(self, kubeconfig: Path, user_agent: str) -> Any:
            opened.append((kubeconfig, user_agent))

    cluster = Cluster(tmp_path / "c", PLANE, actions=Opening())
    cluster.client()
    cluster.client("test")
    assert opened == [(cluster.kubeconfig, "moorage"), (cluster.kubeconfig, "test")]


def is_reserved(cluster: Cluster) -> bool:
    with Reservations() as others:
        return not others.take(f"port 127.0.0.1:{cluster.settings.api_port}")


async def test_reservations_of_a_creation_last_to_the_next_one_or_the_stop(
    steps: Steps, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path / "c", PLANE, actions=steps)
    for _ in range(2):
        # The second takes the same port, which would be refused if it were still reserved.
        assert cluster.create() == cluster.settings
        assert is_reserved(cluster)
    assert await cluster.stop()
    assert not is_reserved(cluster)
    assert steps.steps == ["stop", "clear"]


def test_a_cluster_in_the_foreground_keeps_its_reservations(steps: Steps, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "c", PLANE, actions=steps)
    cluster.create()
    cluster.run_in_foreground("/home/me/.kube/config")
    assert is_reserved(cluster)
    Cluster(tmp_path / "c", actions=steps).run_in_foreground()
    (layout, reserved, merged_into), (_, none, merged_into_none) = steps.became
    assert (layout, merged_into) == (cluster.layout, "/home/me/.kube/config")
    assert reserved.descriptors
    assert (none.descriptors, merged_into_none) == ((), "")


def test_a_cluster_without_choices_takes_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    cluster = Cluster(tmp_path / "link")
    assert cluster.choices == Choices()
    assert cluster.directory == tmp_path / "real"
    assert cluster.kubeconfig == Layout(tmp_path / "real").kubeconfig
    assert cluster.find_settings() is None


async def test_the_host_is_checked_once_and_only_for_pods_of_its_own_engine(
    steps: Steps, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path / "c", Choices(node_name="n1"), actions=steps)
    seen: Any = await cluster.check_host()
    assert seen.handlers == ("runc",)
    await cluster.start()
    plain = {"is_installing": False, "report": None}
    assert steps.checked == [(tmp_path / "c", plain)]
    assert (await Cluster(tmp_path / "d", PLANE, actions=steps).check_host()).handlers == ()
    assert steps.checked == [(tmp_path / "c", plain)]
    assert steps.steps == ["start"]
    await cluster.check_host(is_installing=True, report=print)
    assert steps.checked[1:] == [(tmp_path / "c", {"is_installing": True, "report": print})]


async def test_a_start_checks_the_host_before_it_creates_anything(
    steps: Steps, tmp_path: Path
) -> None:
    steps.missing = "no runtime"
    cluster = Cluster(tmp_path / "c", Choices(node_name="n1"), actions=steps)
    with pytest.raises(CannotRunPodsError, match="no runtime"):
        await cluster.start()
    assert not cluster.directory.exists()
    assert steps.steps == []


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize(
    ("complaint", "warning"), [("", ""), ("too old", "the engine at unix:///e.sock: too old")]
)
async def test_another_engine_is_checked_instead_of_the_host(
    tmp_path: Path, complaint: str, warning: str, *, is_kept: bool
) -> None:
    class Probing(ClusterActions):
        async def probe(self, endpoint: str) -> Any:
            assert endpoint == "unix:///e.sock"
            return SimpleNamespace(complaint=complaint)

    if is_kept:
        settings = msgspec.structs.replace(SETTINGS, cri="unix:///e.sock")
        save(Layout(tmp_path).settings, settings)
    choices = Choices(cri=None if is_kept else "unix:///e.sock")
    cluster = Cluster(tmp_path, choices, actions=Probing())
    assert await cluster.check_host() == HostCheck(handlers=(), warning=warning)


async def test_an_unusable_engine_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CannotRunPodsError, match=r"unix:///no\.sock"):
        await Cluster(tmp_path, Choices(cri="unix:///no.sock")).check_host()


async def test_cleanup_goes_to_its_end_and_then_the_cancellation_is_raised() -> None:
    began, may_end, ended = asyncio.Event(), asyncio.Event(), False

    async def work() -> None:
        nonlocal ended
        began.set()
        await may_end.wait()
        ended = True

    task = asyncio.create_task(complete(work()))
    await began.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended


async def test_cleanup_that_fails_raises_its_error() -> None:
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await complete(fail())


def test_public_names_are_imported_at_their_first_use() -> None:
    program = "import sys, moorage.cluster; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {name for name in ran.stdout.split() if name.startswith("moorage.cluster")}
    assert loaded == {"moorage.cluster"}
    assert all(hasattr(moorage.cluster, name) for name in moorage.cluster.__all__)
    with pytest.raises(AttributeError, match="no attribute 'wings'"):
        _ = moorage.cluster.wings


async def test_objects_survive_a_restart_from_python(tmp_path: Path) -> None:
    body = {"metadata": {"name": "kept"}, "data": {"a": "b"}}
    async with Cluster(tmp_path / "c", PLANE) as cluster, cluster.client() as client:
        assert {part.part for part in cluster.parts} == {"supervisor", "apiserver", "controllers"}
        await client.create(CONFIG_MAPS, body, "default")
        supervisor = cluster.pid
    assert supervisor is not None
    assert cluster.pid is None
    with pytest.raises(ChildProcessError):
        # The supervisor is no zombie of this process.
        os.waitpid(supervisor, os.WNOHANG)  # noqa: ASYNC222
    async with cluster, cluster.client() as client:
        assert (await client.get(CONFIG_MAPS, "kept", "default")).data == {"a": "b"}
