"""Removing what an engine left: real processes and mounts, cgroups on ordinary directories."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from moorage.cluster.engine.sweep import (
    cgroup_paths,
    end,
    end_processes,
    remove_cgroups,
    remove_directory,
    remove_mounts,
    task_ids,
    with_argument_below,
)
from moorage.cluster.errors import LeftoverError
from moorage.cluster.host import Cgroups, Layout
from moorage.linux.mounts import current_mounts, mount, mounts_below, unmount
from moorage.linux.process import descendants, state
from tests.cluster.engine.engines import engine_paths
from tests.descriptors import open_descriptors
from tests.linux.mounting import bind_and_mount_disk, shared_tree

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


def bundle(root: Path, name: str, configuration: bytes | None) -> Path:
    directory = engine_paths(root).engine.bundle(name)
    directory.mkdir(parents=True)
    if configuration is not None:
        (directory / "config.json").write_bytes(configuration)
    return directory


def naming(path: object) -> bytes:
    return json.dumps({"linux": {"cgroupsPath": path}}).encode()


@pytest.mark.parametrize(
    ("configuration", "wanted"),
    [
        (naming("/moorage-x/kubepods/poda/c1"), {"/moorage-x/kubepods/poda/c1"}),
        (naming("relative:slice:c1"), set()),
        (naming("/x/kubepods"), {"/x/kubepods"}),
        # Every cgroup on the host is below the root: that is no path to remove.
        (naming("/"), set()),
        (naming("/a/../.."), set()),
        (naming(""), set()),
        (naming(None), set()),
        (naming(7), set()),
        (b'{"linux": null}', set()),
        (b"{}", set()),
        (b"[]", set()),
        (b"null", set()),
        (b"", set()),
        (naming("/whole")[:-4], set()),
        (b'{"a": "\xc3', set()),
        (None, set()),
    ],
)
def test_cgroups_that_bundles_name(
    tmp_path: Path, configuration: bytes | None, wanted: set[str]
) -> None:
    bundle(tmp_path, "c1", configuration)
    assert cgroup_paths(engine_paths(tmp_path)) == wanted


def test_without_bundles_there_is_nothing(tmp_path: Path) -> None:
    assert task_ids(engine_paths(tmp_path)) == ()
    assert cgroup_paths(engine_paths(tmp_path)) == frozenset()


def test_cgroups_go_with_empty_ones_above_and_below(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for hierarchy in (one, two):
        (hierarchy / "moorage-x" / "kubepods" / "poda" / "c1" / "inner").mkdir(parents=True)
        (hierarchy / "other" / "mine").mkdir(parents=True)
        (hierarchy / "xy").mkdir()
        (hierarchy / "y").mkdir()
    (two / "moorage-x" / "kubepods" / "podb").mkdir()
    cgroups = Cgroups(Layout.V1, hierarchies=(one, two))
    remove_cgroups(["/moorage-x/kubepods/poda", "/moorage-x/gone", "/xy"], cgroups)
    assert sorted(path.name for path in one.iterdir()) == ["other", "y"]
    assert [path.name for path in (two / "moorage-x" / "kubepods").iterdir()] == ["podb"]
    assert (two / "other" / "mine").is_dir()


def test_a_cgroup_with_processes_stays(tmp_path: Path) -> None:
    busy = tmp_path / "moorage-x" / "busy"
    busy.mkdir(parents=True)
    (busy / "cgroup.procs").write_text("1")
    remove_cgroups(["/moorage-x/busy"], Cgroups(Layout.V2, hierarchies=(tmp_path,)))
    assert busy.is_dir()


async def test_only_this_clusters_processes_are_ended(short_path: Path) -> None:
    ours, theirs = engine_paths(short_path), engine_paths(short_path / "other")
    script = "sleep 60 & echo started; wait"

    def monitor(*options: object) -> subprocess.Popen[str]:
        arguments = [option if isinstance(option, bytes) else str(option) for option in options]
        argv = ["sh", "-c", script, "monitor", *arguments]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        return process

    processes = [
        monitor("-b", ours.engine.bundle("c1")),
        monitor(f"--root={ours.engine.runtimes}/runsc"),
        monitor("-b", theirs.engine.bundle("c1")),
        monitor(f"--root={ours.engine.run}x/r"),
        monitor("-b", ours.engine.run),
        # An argument of any program need not be text.
        monitor(b"\xff"),
        monitor("-c", f"ls {ours.engine.bundle('c1')}"),
    ]
    below = descendants([processes[0].pid])[1:]
    assert len(below) == 1
    try:
        before = open_descriptors()
        await end_processes(ours)
        assert open_descriptors() == before
        assert [process.poll() is None for process in processes] == [
            False, False, True, True, True, True, True,
        ]  # fmt: skip
        assert descendants(below) == below
        assert state(below[0]) in ("", "Z")
    finally:
        for pid in descendants([process.pid for process in processes]):
            if state(pid):
                os.kill(pid, 9)
        for process in processes:
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


async def test_containers_end_before_the_monitors_that_reap_them(short_path: Path) -> None:
    # A monitor that saw its container's process end says so, and could not if it went first.
    ours = engine_paths(short_path)
    seen = short_path / "seen"
    script = f"sh -c 'echo started; exec sleep 60'; echo $? > {seen}; exec sleep 60"
    with subprocess.Popen(  # noqa: ASYNC220
        ["sh", "-c", script, "monitor", str(ours.engine.bundle("c1"))],
        stdout=subprocess.PIPE, text=True,
    ) as monitor:  # fmt: skip
        assert monitor.stdout is not None
        assert monitor.stdout.readline() == "started\n"
        await end_processes(ours)
    assert seen.exists()


async def test_processes_that_do_not_exit_are_named() -> None:
    class StuckProcess:
        def __init__(self, pid: int) -> None:
            self.pid = pid

        def send(self, number: int) -> None:
            steps.append((self.pid, number))

        async def ended(self) -> None:
            await asyncio.get_running_loop().create_future()

        def close(self) -> None:
            steps.append((self.pid, "closed"))

    steps: list[tuple[int, int | str]] = []
    stuck: Any = [StuckProcess(5), StuckProcess(6)]
    with pytest.raises(LeftoverError, match=r"^some of the processes 5, 6 do not exit$"):
        await end(stuck, within_s=0.01)
    assert steps == [(5, 9), (6, 9), (5, "closed"), (6, "closed")]


@as_root
def test_each_mount_is_unmounted_although_one_stays(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        mount("none", tmp_path / name, "tmpfs", "size=16k")

    def unmount_b(point: Path) -> None:
        if point.name == "a":
            raise OSError(16, "busy")
        unmount(point)

    with pytest.raises(LeftoverError, match=f"^{tmp_path}/a cannot be unmounted$"):
        remove_mounts(tmp_path, unmount_b)
    assert [entry.point for entry in mounts_below(tmp_path, current_mounts())] == [tmp_path / "a"]
    remove_mounts(tmp_path)


@as_root
def test_mounts_that_cannot_be_made_private_are_not_unmounted(tmp_path: Path) -> None:
    mount("none", tmp_path, "tmpfs", "size=16k")
    taken: list[Path] = []

    def refused(_directory: Path) -> None:
        raise OSError(1, "Operation not permitted")

    with pytest.raises(LeftoverError, match="cannot be made private"):
        remove_mounts(tmp_path, taken.append, refused)
    assert taken == []
    remove_mounts(tmp_path)
    assert mounts_below(tmp_path, current_mounts()) == []


def test_own_process_and_what_started_it_are_spared(short_path: Path) -> None:
    ours = engine_paths(short_path)
    program = (
        "import sys, pathlib; from moorage.cluster.engine.sweep import with_argument_below;"
        "print(with_argument_below(pathlib.Path(sys.argv[1])))"
    )
    argv = [sys.executable, "-c", program, str(ours.engine.run), str(ours.engine.bundle("c1"))]
    # The shell has the path among its arguments too, and waits.
    script = '"$@"; echo done'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *argv], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\ndone\n"


def test_process_of_a_terminal_is_spared(short_path: Path) -> None:
    ours = engine_paths(short_path)
    program = "import sys; print('ready', flush=True); sys.stdin.read()"
    daemon, reader = pty.openpty()
    argv = [sys.executable, "-c", program, str(ours.engine.bundle("c1"))]
    with (
        subprocess.Popen(
            ["setsid", "--ctty", *argv], stdin=reader, stdout=subprocess.PIPE, stderr=reader
        ) as with_terminal,
        subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        ) as monitor,
    ):
        try:
            for process in (with_terminal, monitor):
                assert process.stdout is not None
                assert process.stdout.readline() == b"ready\n"
            assert with_argument_below(ours.engine.run) == [monitor.pid]
        finally:
            with_terminal.kill()
            monitor.kill()
            os.close(daemon)
            os.close(reader)


@as_root
def test_mounts_go_innermost_first_and_directories_after_them(tmp_path: Path) -> None:
    directory = tmp_path / "run it"
    directory.mkdir()
    for name in ("", "a", "a/b"):
        (directory / name).mkdir(exist_ok=True)
        mount("none", directory / name, "tmpfs", "size=16k")
    (directory / "a" / "b" / "file").touch()
    remove_directory(directory)
    assert not directory.exists()
    assert mounts_below(tmp_path, current_mounts()) == []
    remove_directory(directory)


@as_root
def test_a_directory_behind_a_link_is_freed_too(tmp_path: Path) -> None:
    real = tmp_path / "disk"
    (real / "volume").mkdir(parents=True)
    link = tmp_path / "data"
    link.symlink_to(real)
    mount("none", real / "volume", "tmpfs", "size=16k")
    remove_mounts(link)
    assert mounts_below(tmp_path, current_mounts()) == []


@as_root
def test_behind_a_mount_that_stays_nothing_is_removed(tmp_path: Path) -> None:
    directory = tmp_path / "volume"
    directory.mkdir()
    mount("none", directory, "tmpfs", "size=16k")
    (directory / "precious").touch()

    def busy(point: Path) -> None:
        raise OSError(16, "Device or resource busy", str(point))

    with pytest.raises(LeftoverError, match="volume cannot be unmounted"):
        remove_directory(directory, busy)
    assert (directory / "precious").exists()
    remove_directory(directory)


@as_root
def test_the_hosts_own_mounts_stay(tmp_path: Path) -> None:
    with shared_tree(tmp_path):
        disk = bind_and_mount_disk(tmp_path / "data", tmp_path / "node" / "volume")
        remove_directory(tmp_path / "node")
        assert disk.is_mount()
        assert not (tmp_path / "node").exists()
