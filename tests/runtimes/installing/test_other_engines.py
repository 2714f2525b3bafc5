"""`moor runtime` on containerd and CRI-O, under pods that run: done and proven, or undone."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import signal
import subprocess
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from moorage.cluster.images import BUSYBOX
from moorage.runtimes.installing.journal import Journal
from moorage.runtimes.installing.running_processes import PodProcess, running_processes
from moorage.wire.cri import CriClient, handlers_of, pb
from tests.containerd import newer_containerd, skip_without_containerd, started_containerd
from tests.crio import started_crio
from tests.forks import Fork, run_moor
from tests.running import skip_without_runtimes, until

pytestmark = [pytest.mark.runtime, pytest.mark.slow, pytest.mark.root, pytest.mark.timeout(600)]

_DEADLINE_S = 180.0


class Engine(Protocol):
    """What both engines of the tests have."""

    @property
    def root(self) -> Path: ...

    @property
    def endpoint(self) -> str: ...

    @property
    def main(self) -> Path: ...

    @property
    def restart_command(self) -> str: ...


@pytest.fixture(scope="module", params=["containerd", "containerd-2", "cri-o"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    skip_without_runtimes()
    if request.param == "cri-o":
        with started_crio() as crio:
            yield crio
        return
    skip_without_containerd()
    if request.param == "containerd":
        with started_containerd() as started:
            yield started
    else:
        with newer_containerd() as programs, started_containerd(programs) as started:
            yield started


def _moor(engine: Engine, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = run_moor(
        "runtime", *arguments, "--cri", engine.endpoint, "--data-dir", str(engine.root / "moor"),
        "--restart-command", engine.restart_command, timeout_s=_DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == status, f"{done.stdout}\n{done.stderr}"
    return done


def _files(engine: Engine) -> dict[Path, bytes]:
    """All configuration files of the engine."""
    paths = [engine.main, *engine.main.parent.glob("*.d/*")]
    return {path: path.read_bytes() for path in paths if path.is_file()}


async def _with_cri(engine: Engine, work: Any) -> Any:
    async with CriClient(engine.endpoint) as cri:
        return await work(cri)


def _handlers(engine: Engine) -> set[str]:
    found = asyncio.run(_with_cri(engine, handlers_of))
    return {handler.name for handler in found}


def _processes(engine: Engine) -> dict[str, PodProcess]:
    found: dict[str, PodProcess] = asyncio.run(_with_cri(engine, running_processes))
    return found


def _run_pod(engine: Engine, handler: str = "") -> str:
    """Start a sandbox with a container that sleeps, and return the sandbox's ID."""

    async def work(cri: CriClient) -> str:
        name = f"p-{uuid.uuid4().hex[:8]}"
        # As the kubelet asks for: CRI-O needs no infra container then.
        namespaces = pb.NamespaceOption(pid=pb.CONTAINER)
        sandbox = pb.PodSandboxConfig(
            metadata=pb.PodSandboxMetadata(name=name, namespace="default", uid=name),
            log_directory=str(engine.root / "logs"),
            linux=pb.LinuxPodSandboxConfig(
                security_context=pb.LinuxSandboxSecurityContext(namespace_options=namespaces)
            ),
        )
        request = pb.RunPodSandboxRequest(config=sandbox, runtime_handler=handler)
        id_ = (await cri.call(cri.runtime.RunPodSandbox, request)).pod_sandbox_id
        container = pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name="app"),
            image=pb.ImageSpec(image=BUSYBOX),
            # It ends at once: CRI-O gives a sandbox's containers as long as the call may take.
            command=["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.2; done"],
            log_path="app.log",
            linux=pb.LinuxContainerConfig(
                security_context=pb.LinuxContainerSecurityContext(namespace_options=namespaces)
            ),
        )
        created = await cri.call(
            cri.runtime.CreateContainer,
            pb.CreateContainerRequest(pod_sandbox_id=id_, config=container, sandbox_config=sandbox),
        )
        start = pb.StartContainerRequest(container_id=created.container_id)
        await cri.call(cri.runtime.StartContainer, start)
        return id_

    return str(asyncio.run(_with_cri(engine, work)))


def _remove_pod(engine: Engine, sandbox: str) -> None:
    async def work(cri: CriClient) -> None:
        stop = pb.StopPodSandboxRequest(pod_sandbox_id=sandbox)
        await cri.call(cri.runtime.StopPodSandbox, stop)
        remove = pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox)
        await cri.call(cri.runtime.RemovePodSandbox, remove)

    asyncio.run(_with_cri(engine, work))


def _runc() -> str:
    program = shutil.which("runc")
    assert program is not None
    return program


def _broken(directory: Path, name: str = "runc") -> Path:
    """A runtime that fails to create containers."""
    program = directory / name
    program.write_text(
        f'#!/bin/sh\nfor word in "$@"; do [ "$word" = create ] && '
        f'{{ echo out of order >&2; exit 1; }}; done\nexec {_runc()} "$@"\n'
    )
    program.chmod(0o755)
    return program


def test_a_runtime_comes_changes_and_goes_under_a_running_pod(
    engine: Engine, tmp_path: Path
) -> None:
    files, handlers = _files(engine), _handlers(engine)
    bystander = _run_pod(engine)
    before = _processes(engine)
    # CRI-O has no process of the sandbox itself.
    assert before
    added = _moor(engine, "add", "m-one", "--binary", _runc(), "--version", "1")
    store = engine.root / "moor" / "runtimes"
    assert added.stdout == f"handler m-one added: version 1, {store}/m-one/1/runc\n"
    assert _handlers(engine) == {*handlers, "m-one"}
    assert _processes(engine) == before
    again = _moor(engine, "add", "m-one", "--binary", _runc(), status=1)
    assert "use `moor runtime upgrade`" in again.stderr
    pod = _run_pod(engine, "m-one")
    running = _processes(engine)

    archive = tmp_path / "runc.tar.gz"
    with tarfile.open(archive, "w:gz") as entries:
        entries.add(_runc(), "bin/runc")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    upgraded = _moor(
        engine, "upgrade", "m-one", "--archive", str(archive), "--sha256", digest,
        "--program", "bin/runc", "--version", "2",
    )  # fmt: skip
    assert upgraded.stdout == f"handler m-one upgraded: version 2, {store}/m-one/2/bin/runc\n"
    assert _processes(engine) == running
    assert {path.name for path in (store / "m-one").iterdir()} == {"1", "2"}

    refused = _moor(engine, "remove", "m-one", status=1)
    assert "pods run under handler m-one: default/p-" in refused.stderr
    forced = _moor(engine, "remove", "m-one", "--force")
    assert "sandboxes run under it" in forced.stderr
    assert _handlers(engine) == handlers
    assert _processes(engine) == running
    assert _files(engine) == files
    _remove_pod(engine, pod)
    assert _moor(engine, "remove", "m-one").stderr == ""
    assert not (store / "m-one").exists()
    assert _processes(engine) == before
    _remove_pod(engine, bystander)


def test_an_old_version_goes_with_the_last_pod_that_may_use_it(engine: Engine) -> None:
    _moor(engine, "add", "m-ver", "--binary", _runc(), "--version", "1")
    pod = _run_pod(engine, "m-ver")
    _moor(engine, "upgrade", "m-ver", "--binary", _runc(), "--version", "2")
    store = engine.root / "moor" / "runtimes" / "m-ver"
    assert {path.name for path in store.iterdir()} == {"1", "2"}
    _remove_pod(engine, pod)
    _moor(engine, "upgrade", "m-ver", "--binary", _runc(), "--version", "3")
    assert {path.name for path in store.iterdir()} == {"3"}
    _moor(engine, "remove", "m-ver")


def test_a_runtime_that_fails_its_proof_leaves_everything_as_before(
    engine: Engine, tmp_path: Path
) -> None:
    bystander = _run_pod(engine)
    files, handlers, processes = _files(engine), _handlers(engine), _processes(engine)
    failed = _moor(engine, "add", "m-bad", "--binary", str(_broken(tmp_path)), status=1)
    assert "handler m-bad does not work" in failed.stderr
    assert "everything is as before" in failed.stderr
    assert (_files(engine), _handlers(engine), _processes(engine)) == (files, handlers, processes)
    assert not (engine.root / "moor" / "runtimes" / "m-bad" / "1").exists()

    _moor(engine, "add", "m-bad", "--binary", _runc(), "--version", "1")
    files = _files(engine)
    failed = _moor(
        engine, "upgrade", "m-bad", "--binary", str(_broken(tmp_path)), "--version", "2", status=1
    )
    assert "handler m-bad does not work" in failed.stderr
    assert _files(engine) == files
    _remove_pod(engine, _run_pod(engine, "m-bad"))
    _moor(engine, "remove", "m-bad")
    _remove_pod(engine, bystander)


def test_an_engine_that_does_not_come_back_is_put_back(engine: Engine, tmp_path: Path) -> None:
    """The restart command starts the engine at its second call only."""
    files, handlers = _files(engine), _handlers(engine)
    once = tmp_path / "restart"
    once.write_text(
        f"#!/bin/sh\n[ -e {tmp_path}/failed ] && exec {engine.restart_command}\n"
        f"touch {tmp_path}/failed\nkill $(cat {engine.root}/pid)\necho it broke >&2; exit 3\n"
    )
    once.chmod(0o755)
    done = run_moor(
        "runtime", "add", "m-out", "--binary", _runc(), "--cri", engine.endpoint,
        "--data-dir", str(engine.root / "moor"), "--restart-command", str(once),
        timeout_s=_DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 1
    assert "the engine does not restart" in done.stderr
    assert "it broke; everything is as before" in done.stderr
    assert (_files(engine), _handlers(engine)) == (files, handlers)


@pytest.mark.parametrize("kill_at", ["before", "during"])
def test_a_run_that_is_killed_is_undone_by_the_next(
    engine: Engine, kill_at: str, tmp_path: Path
) -> None:
    files, handlers = _files(engine), _handlers(engine)
    hanging = tmp_path / "restart"
    first = "" if kill_at == "before" else engine.restart_command
    hanging.write_text(f"#!/bin/sh\n{first}\ntouch {tmp_path}/there\nexec sleep 600\n")
    hanging.chmod(0o755)
    run = Fork(
        [
            "moorage.cli", "runtime", "add", "m-kill", "--binary", _runc(),
            "--cri", engine.endpoint, "--data-dir", str(engine.root / "moor"),
            "--restart-command", str(hanging),
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: (tmp_path / "there").exists(), "the restart", within_s=60)
        run.send_signal(signal.SIGKILL)
        run.wait(20)
    finally:
        run.kill()
        sleepers = subprocess.run(
            ["pgrep", "-f", f"/bin/sh {hanging}|sleep 600"], capture_output=True, text=True,
            check=False,
        ).stdout.split()  # fmt: skip
    assert _files(engine) != files
    # The command of the interrupted run is the one that restarts the engine.
    hanging.write_text(f"#!/bin/sh\nexec {engine.restart_command}\n")
    done = _moor(engine, "remove", "m-kill", status=1)
    assert "an interrupted `moor runtime add m-kill` was undone" in done.stderr
    assert "there is no handler m-kill" in done.stderr
    assert (_files(engine), _handlers(engine)) == (files, handlers)
    assert Journal(engine.root / "moor" / "runtimes").read() is None
    for pid in sleepers:
        subprocess.run(["kill", pid], check=False, capture_output=True)


def test_the_handlers_of_others_and_unreadable_files_are_left_alone(engine: Engine) -> None:
    files = _files(engine)
    foreign = sorted(_handlers(engine) - {""})[0]
    refused = _moor(engine, "add", foreign, "--binary", _runc(), status=1)
    assert "`moor runtime` did not write it" in refused.stderr
    refused = _moor(engine, "remove", foreign, status=1)
    assert f"there is no handler {foreign} that `moor runtime` wrote" in refused.stderr
    text = engine.main.read_bytes()
    try:
        engine.main.write_bytes(text + b"\n[[[\n")
        refused = _moor(engine, "add", "m-odd", "--binary", _runc(), status=1)
        assert "it is not TOML" in refused.stderr
    finally:
        engine.main.write_bytes(text)
    assert _files(engine) == files


def test_an_engine_without_a_way_to_restart_it_is_not_changed(engine: Engine) -> None:
    files = _files(engine)
    done = run_moor(
        "runtime", "add", "m-no", "--binary", _runc(), "--cri", engine.endpoint,
        "--data-dir", str(engine.root / "moor"),
        timeout_s=_DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 1
    assert "give the command that restarts it with --restart-command" in done.stderr
    assert _files(engine) == files
