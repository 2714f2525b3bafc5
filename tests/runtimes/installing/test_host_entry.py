"""The way into the host: by its first process, else by the engine, else refused with a remedy."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from moorage.runtimes.installing import RuntimeInstallationError
from moorage.runtimes.installing.host_entry import HostEntry, check_shared, open_entry

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mount namespaces need root")

_LISTEN = """
import socket, sys
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    print("listening", flush=True)
    sys.stdin.read()
"""
_ENTER = """
import subprocess, sys
from contextlib import closing
from pathlib import Path
from moorage.runtimes.installing import RuntimeInstallationError
from moorage.runtimes.installing.host_entry import open_entry
endpoint, shared, first, wanted = sys.argv[1:]
try:
    with closing(open_entry(endpoint, Path(shared), Path(first))) as entry:
        print(entry.is_direct)
        print(subprocess.run(entry.command(["cat", wanted]), capture_output=True, text=True).stdout)
        print(entry.path(Path(wanted)).read_text())
except RuntimeInstallationError as error:
    print(error)
"""


@contextmanager
def engine(path: Path, *prefix: str) -> Iterator[str]:
    """A process that listens; the endpoint is given."""
    with subprocess.Popen(
        [*prefix, sys.executable, "-c", _LISTEN, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"listening\n"
        yield f"unix://{path}"
        process.stdin.close()


def entered(endpoint: str, shared: Path, first: str, wanted: Path, *, hides: Path) -> list[str]:
    """What an agent gets that has other mounts, in which a directory is hidden."""
    script = f'mount -t tmpfs none {hides} && exec "$@"'
    command = [sys.executable, "-c", _ENTER, endpoint, str(shared), first, str(wanted)]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *command],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.split("\n")


def test_an_engine_with_the_same_files_is_reached_directly(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        entry = open_entry(f"unix://{tmp_path}/s", tmp_path)
    assert entry.is_direct
    assert entry.command(["systemctl"]) == ("systemctl",)
    assert entry.path(Path("/etc")) == Path("/etc")
    entry.close()


def test_an_absolute_link_of_the_host_leads_to_the_hosts_files(tmp_path: Path) -> None:
    """`/var/lib` may be one: the directory counted as removed while it was there."""
    process, root = tmp_path / "process", tmp_path / "process/root"
    (root / "disk/lib/agent").mkdir(parents=True)
    (root / "var").mkdir()
    (root / "var/lib").symlink_to("/disk/lib")
    namespace = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    with closing(HostEntry(namespace, os.open(process, os.O_PATH))) as entry:
        found = entry.path(Path("/var/lib/agent"))
        found.rmdir()
    assert not (root / "disk/lib/agent").exists()


@needs_root
@pytest.mark.slow
def test_the_hosts_files_are_reached_through_the_engine(tmp_path: Path) -> None:
    hidden = tmp_path / "etc"
    hidden.mkdir()
    (hidden / "file").write_text("of the host")
    with engine(tmp_path / "s") as endpoint:
        # No such first process: one that cannot be entered.
        said = entered(endpoint, tmp_path, "/proc/0", hidden / "file", hides=hidden)
        assert said[:3] == ["False", "of the host", "of the host"]
        # What is no directory of the host's at that path proves nothing.
        said = entered(endpoint, hidden, "/proc/0", hidden / "file", hides=hidden)
        assert "is not taken for the host's engine" in said[0]
    said = entered(endpoint, tmp_path, "/proc/0", hidden / "file", hides=hidden)
    assert "nothing listens on" in said[0]
    assert "start the engine on the node" in said[0]


@needs_root
@pytest.mark.slow
def test_a_process_of_a_pod_is_not_entered(tmp_path: Path) -> None:
    hidden = tmp_path / "etc"
    hidden.mkdir()
    (hidden / "file").write_text("of the host")
    for prefix, problem in (
        (("setpriv", "--bounding-set=-sys_admin"), "lacks the capability SYS_ADMIN"),
        (("unshare", "--pid", "--fork"), "process IDs of its own"),
        (("unshare", "--user", "--map-root-user"), "a user namespace of its own"),
    ):
        path = tmp_path / prefix[1].strip("-").partition("=")[0]
        with engine(path, *prefix) as endpoint:
            (said, *_) = entered(endpoint, tmp_path, "/proc/0", hidden / "file", hides=hidden)
            assert problem in said


@needs_root
@pytest.mark.slow
def test_an_engine_with_files_of_its_own_is_refused(tmp_path: Path) -> None:
    with (
        engine(tmp_path / "s", "unshare", "--mount") as endpoint,
        pytest.raises(RuntimeInstallationError, match="a file system of its own"),
    ):
        open_entry(endpoint, tmp_path)


def test_a_configuration_that_the_agent_does_not_have_is_named(tmp_path: Path) -> None:
    check_shared(Path("/proc/self"), [tmp_path])
    with pytest.raises(RuntimeInstallationError, match=r"agent\.hostPaths"):
        check_shared(Path("/proc/self"), [tmp_path / "absent"])
