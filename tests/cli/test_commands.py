"""The command line: help, exit statuses, forms of output, and what it refuses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.running import MOOR, RunningCluster, running

COMMANDS = (
    "up", "down", "status", "logs", "kubeconfig", "explain", "runtimes", "doctor", "image",
    "engine", "demo", "completion",
)  # fmt: skip


def _moor(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*MOOR, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def test_help_lists_every_command_and_the_exit_statuses() -> None:
    said = _moor("--help").stdout
    for command in COMMANDS:
        assert f"\n  {command} " in said
    assert "3 the cluster is not running" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    assert _moor(command, "--help").stdout.startswith(f"Usage: moor {command}")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("fly",), 2, "No such command"),
        (("status", "--data-dir", "/no/such/folder"), 3, "`moor up` makes one"),
        (("logs", "apiserver", "--data-dir", "/no/such/folder"), 3, "there is no cluster"),
        (("down", "--data-dir", "/no/such/folder"), 3, "there is no cluster"),
        (("explain", "deployment/x", "--data-dir", "/no/such/folder"), 2, "only pods"),
        (("up", "--cri", "tcp://x", "--data-dir", "/no/such/folder"), 2, "unix:///"),
        (("engine", "--listen", "/run/x.sock"), 2, "unix:///"),
        (("engine", "--listen", f"unix:///{'x' * 110}"), 2, "at most 107 bytes"),
        (("engine", "--run-dir", f"/run/{'x' * 80}"), 2, "too long for sockets"),
        (("engine", "--registry-mirror", "docker.io"), 2, "takes KEY=VALUE"),
        (("up", "--feature-gate", "Wings=true", "--data-dir", "/no/such"), 2, "RuntimeClass"),
        (("up", "--pod-network", "x", "--no-node", "--data-dir", "/no/such"), 1, "no IPv4 network"),
        (("demo", "--examples", "/no/such/folder"), 1, "there are no examples"),
        (("down", "--keep-pods", "--delete-data"), 2, "exclude each other"),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, tuple) else None,
)
def test_failures_are_one_line_with_their_status(
    arguments: tuple[str, ...], status: int, said: str
) -> None:
    done = _moor(*arguments, status=status)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_and_runtimes_speak_json_and_yaml(tmp_path: Path) -> None:
    done = subprocess.run(
        [*MOOR, "doctor", "-o", "json", "--data-dir", str(tmp_path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    # Its status says whether pods can run here, which depends on the machine.
    assert done.returncode in (0, 4)
    subjects = {each["subject"] for each in json.loads(done.stdout)}
    assert {"user", "kernel", "capabilities", "cgroups", "engine"} <= subjects
    rows = yaml.safe_load(_moor("runtimes", "--all", "-o", "yaml").stdout)
    assert {"runc", "crun", "gvisor", "kata-containers"} <= {each["handler"] for each in rows}
    assert all(each["available"] or (each["reason"] and each["remedy"]) for each in rows)


def test_output_to_a_pipe_has_no_colour() -> None:
    assert "\x1b" not in _moor("runtimes", "--all").stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script(shell: str) -> None:
    assert "_MOOR_COMPLETE" in _moor("completion", shell).stdout


def test_a_running_cluster_is_told_and_not_started_twice(control_plane: RunningCluster) -> None:
    rows = json.loads(control_plane.moor("status", "-o", "json").stdout)
    assert [row["part"] for row in rows] == ["supervisor", "apiserver", "controllers"]
    assert all(row["state"] == "ready" and row["memory_bytes"] > 0 for row in rows)
    said = control_plane.moor("up", status=1).stderr
    assert "a cluster already runs on" in said


def test_logs_of_a_part(control_plane: RunningCluster) -> None:
    assert "apiserver.server ready" in control_plane.moor("logs", "apiserver").stdout


def test_the_users_kubeconfig_is_written_only_when_asked(
    control_plane: RunningCluster, tmp_path: Path
) -> None:
    own = tmp_path / "config"
    kept = {"name": "mine", "context": {"cluster": "c", "user": "u"}}
    own.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "contexts": [kept]}))
    before = own.read_text()
    control_plane.moor("kubeconfig", "--file", str(own))
    assert own.read_text() == before
    control_plane.moor("kubeconfig", "--merge", "--file", str(own))
    assert [each["name"] for each in yaml.safe_load(own.read_text())["contexts"]] == [
        "mine",
        "moorage",
    ]
    control_plane.moor("kubeconfig", "--unmerge", "--file", str(own))
    assert yaml.safe_load(own.read_text())["contexts"] == [kept]


def test_a_cluster_resumes_with_everything_in_it(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--no-node") as cluster:
        cluster.kubectl("create", "configmap", "kept", "--from-literal=a=b")
        before = cluster.get("configmap", "kept")
        cluster.moor("down")
        cluster.moor("status", status=3)
        cluster.moor("up", "--detach")
        assert cluster.get("configmap", "kept") == before
        said = cluster.moor("down").stdout
        assert "stopped" in said
        cluster.moor("up", "--detach", "--node-name", "other", status=1)
        cluster.moor("up", "--detach")
