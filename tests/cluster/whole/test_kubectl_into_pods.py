"""Into running pods with kubectl: logs, commands, files, ports, over both stream protocols."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.running import NGINX_STAND_IN, RunningCluster, pod, skip_without_gvisor

pytestmark = pytest.mark.runtime

_TICKS = "i=0; while :; do echo tick $i; i=$((i+1)); sleep 0.1; done"
_PROTOCOLS = {
    "websocket": {},
    "spdy": {
        "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false",
        "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false",
    },
}


@pytest.fixture(scope="module", params=["native", "crun", "gvisor"])
def class_name(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if name == "gvisor":
        skip_without_gvisor()
    return name


@pytest.fixture(scope="module")
def cluster(whole_cluster: RunningCluster, class_name: str) -> Iterator[RunningCluster]:
    """A cluster with one talking pod and one web server, both of that class."""
    talking = pod("talks", runtime_class=class_name, container={"command": ["sh", "-c", _TICKS]})
    serving = pod(
        "serves",
        runtime_class=class_name,
        container={"image": NGINX_STAND_IN, "command": ["/usr/bin/serve"]},
    )
    whole_cluster.apply(talking, serving)
    whole_cluster.wait_ready("talks", "serves")
    yield whole_cluster
    whole_cluster.kubectl("delete", "pod", "talks", "serves", "--timeout=30s")


def _run(
    cluster: RunningCluster, protocol: str, *arguments: str, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["kubectl", *arguments],
        input=stdin,
        capture_output=True,
        timeout=30,
        env=cluster.environment | _PROTOCOLS[protocol],
        check=False,
    )


def test_logs_follow_what_a_container_says(cluster: RunningCluster) -> None:
    follower = subprocess.Popen(
        ["kubectl", "logs", "-f", "talks", "--tail=1"],
        stdout=subprocess.PIPE,
        env=cluster.environment,
    )
    assert follower.stdout is not None
    try:
        numbers = [int(follower.stdout.readline().split()[1]) for _ in range(5)]
    finally:
        follower.terminate()
        follower.wait()
    assert numbers == list(range(numbers[0], numbers[0] + 5))


def test_logs_of_a_container_that_is_not_there_name_those_that_are(
    cluster: RunningCluster,
) -> None:
    answer = cluster.kubectl("logs", "talks", "-c", "absent", fails=True)
    assert "container absent is not valid for pod talks" in answer.stderr


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_a_command_ends_with_its_own_status_and_keeps_streams_apart(
    cluster: RunningCluster, protocol: str
) -> None:
    done = _run(
        cluster, protocol, "exec", "talks", "--", "sh", "-c", "echo out; echo err >&2; exit 7"
    )
    assert done.returncode == 7
    assert done.stdout == b"out\n"
    assert done.stderr.startswith(b"err\n")


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_the_end_of_input_reaches_the_command(cluster: RunningCluster, protocol: str) -> None:
    stdin = os.urandom(3 << 20)
    done = _run(cluster, protocol, "exec", "-i", "talks", "--", "cat", stdin=stdin)
    assert done.returncode == 0, done.stderr
    assert done.stdout == stdin


def test_a_terminal_is_one(cluster: RunningCluster) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["kubectl", "exec", "-it", "talks", "--", "sh", "-c", "test -t 0 -a -t 1 && echo over"],
        stdin=theirs, stdout=theirs, stderr=theirs, env=cluster.environment, close_fds=True,
    )  # fmt: skip
    os.close(theirs)
    output = b""
    try:
        # Reading a terminal whose other side is closed ends with an OSError.
        with suppress(OSError):
            while b"over" not in output and select.select([ours], [], [], 20)[0]:
                output += os.read(ours, 4096)
    finally:
        process.wait(20)
        os.close(ours)
    assert b"over" in output


def test_a_missing_program_says_so(cluster: RunningCluster) -> None:
    answer = cluster.kubectl("exec", "talks", "--", "/no/such/program", fails=True)
    # Each runtime has its own words.
    assert "no such file or directory" in answer.stderr.lower()


def test_files_go_there_and_back(cluster: RunningCluster, tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    there.write_bytes(os.urandom(1 << 20))
    cluster.kubectl("cp", str(there), "talks:/tmp/file")
    cluster.kubectl("cp", "talks:/tmp/file", str(back))
    assert back.read_bytes() == there.read_bytes()


def _is_page(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return b"Stand-in for nginx" in answer.read()
    except ConnectionResetError:
        # Or RemoteDisconnected, which is one.
        return False


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_a_forwarded_port_answers(cluster: RunningCluster, class_name: str, protocol: str) -> None:
    forwarder = subprocess.Popen(
        ["kubectl", "port-forward", "pod/serves", ":80"],
        stdout=subprocess.PIPE,
        text=True,
        env=cluster.environment | _PROTOCOLS[protocol],
    )
    assert forwarder.stdout is not None
    try:
        match = re.search(r"127\.0\.0\.1:(\d+)", forwarder.stdout.readline())
        assert match is not None
        url = f"http://127.0.0.1:{match[1]}/"
        if class_name == "gvisor":
            # In gVisor of 2022 a server that reads before its client has sent fails.
            assert any(_is_page(url) for _ in range(30))
        else:
            assert all(_is_page(url) for _ in range(5))
    finally:
        forwarder.terminate()
        forwarder.wait()


def test_attach_streams_the_main_process(cluster: RunningCluster) -> None:
    attached = subprocess.Popen(
        ["kubectl", "attach", "talks"], stdout=subprocess.PIPE, env=cluster.environment
    )
    assert attached.stdout is not None
    try:
        assert attached.stdout.readline().startswith(b"tick ")
    finally:
        attached.terminate()
        attached.wait()
