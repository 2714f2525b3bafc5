"""The command line: help, exit statuses, forms of output, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.cli.moor import moor
from tests.running import MOOR, RunningCluster, pod, running, skip_without_kubectl


def test_the_program_is_there() -> None:
    done = subprocess.run(
        [*MOOR, "status", "--data-dir", "/no/such/directory"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "moor: there is no cluster in /no/such/directory; `moor up` makes one; --data-dir or "
        "MOORAGE_DATA_DIR choose another directory\n"
    )


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("fly",), 2, "No such command"),
        (("status", "--data-dir", "/no/such/directory"), 3, "`moor up` makes one"),
        (("logs", "apiserver", "--data-dir", "/no/such/directory"), 3, "there is no cluster"),
        (("down", "--data-dir", "/no/such/directory"), 3, "there is no cluster"),
        (("explain", "service/x", "--data-dir", "/no/such/directory"), 2, "pods and workloads"),
        (("up", "--cri", "tcp://x", "--data-dir", "/no/such/directory"), 2, "unix:///"),
        (
            ("up", "--cri", "unix:///no/x.sock", "--data-dir", "/no/such/directory"),
            4,
            "the engine at unix:///no/x.sock cannot be used: there is no /no/x.sock",
        ),
        (("up", "--cri", "unix:///x", "--own-engine", "--data-dir", "/no/such"), 2, "exclude"),
        (("down", "--keep-pods", "--abandon-pods"), 2, "exclude each other"),
        (("engine", "--listen", "/run/x.sock"), 2, "unix:///"),
        (("engine", "--listen", f"unix:///{'x' * 110}"), 2, "at most 107 bytes"),
        (("engine", "--run-dir", f"/run/{'x' * 80}"), 2, "too long for sockets"),
        (("engine", "--registry-mirror", "docker.io"), 2, "takes KEY=VALUE"),
        (("up", "--image-verification", "Sometimes"), 2, "NeverVerifyPreloadedImages"),
        (("up", "--image-allowlist", "r.example/a"), 2, "NeverVerifyAllowlistedImages"),
        (
            (
                "up",
                "--image-verification",
                "NeverVerifyAllowlistedImages",
                "--image-allowlist",
                "*",
            ),
            2,
            "only patterns ending with '/*' are allowed",
        ),
        (("up", "--feature-gate", "Wings=true", "--data-dir", "/no/such"), 2, "RuntimeClass"),
        (("up", "--pod-network", "x", "--no-node", "--data-dir", "/no/such"), 1, "an IPv4 network"),
        (("demo", "--examples", "/no/such/directory"), 1, "there are no examples"),
        (("down", "--keep-pods", "--delete-data"), 2, "exclude each other"),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, tuple) else None,
)
def test_failures_are_one_line_with_their_status(
    arguments: tuple[str, ...], status: int, message: str, tmp_path: Path
) -> None:
    argv = [argument.replace("/no/such/directory", f"{tmp_path}/none") for argument in arguments]
    done = moor(*argv)
    assert done.status == status
    assert message in done.err
    assert "Traceback" not in done.err


def test_doctor_and_runtimes_speak_json_and_yaml(tmp_path: Path) -> None:
    done = moor("doctor", "-o", "json", "--data-dir", tmp_path)
    # Its status says whether pods can run here, which depends on the machine.
    assert done.status in (0, 4)
    subjects = {row["subject"] for row in json.loads(done.out)}
    assert {"user", "kernel", "capabilities", "cgroups", "engine"} <= subjects
    answer = moor("runtimes", "--all", "-o", "yaml", "--data-dir", tmp_path)
    assert "\x1b" not in answer.out
    rows = yaml.safe_load(answer.out)
    assert {"runc", "crun", "gvisor", "kata-containers"} <= {row["handler"] for row in rows}
    assert all(row["available"] or (row["reason"] and row["remedy"]) for row in rows)


def test_up_reports_a_running_cluster_and_does_not_start_it_twice(
    control_plane: RunningCluster,
) -> None:
    rows = json.loads(control_plane.moor("status", "-o", "json").stdout)
    assert [row["part"] for row in rows] == ["supervisor", "apiserver", "controllers"]
    assert all(row["state"] == "ready" and row["memory_bytes"] > 0 for row in rows)
    for options in (("up", "--no-node"), ("up", "--detach"), ("up",)):
        output = control_plane.moor(*options).stdout
        assert "runs already without a node (supervisor process" in output
        assert f"export KUBECONFIG={control_plane.kubeconfig}" in output


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--node",), "--node"), (("--api-port", "1"), "--api-port"), (("--name", "x"), "--name")],
    ids=lambda value: " ".join(value),
)
def test_up_refuses_options_that_a_running_cluster_does_not_have(
    control_plane: RunningCluster, options: tuple[str, ...], message: str
) -> None:
    refused = control_plane.moor("up", *options, status=1).stderr
    assert f"runs with a different {message}" in refused
    assert f"moor down --keep-pods --data-dir {control_plane.data_dir}" in refused


def test_logs_of_a_part(control_plane: RunningCluster) -> None:
    assert "apiserver.server.lifecycle ready" in control_plane.moor("logs", "apiserver").stdout


def test_logs_of_all_parts_have_the_part_before_each_line_in_order_of_time(
    control_plane: RunningCluster,
) -> None:
    lines = control_plane.moor("logs").stdout.splitlines()
    assert {line.split()[0] for line in lines} >= {"supervisor", "apiserver"}
    stamps = [words[1] for line in lines if len(words := line.split()) > 1 and words[1][:2] == "20"]
    assert stamps
    assert stamps == sorted(stamps)
    ready = next(line for line in lines if "apiserver.server.lifecycle ready" in line)
    assert ready.startswith("apiserver    20")


def test_logs_of_all_parts_are_followed(control_plane: RunningCluster) -> None:
    argv = [*MOOR, "logs", "-f", "-n", "1000", "--data-dir", str(control_plane.data_dir)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        seen: set[str] = set()
        try:
            while not seen >= {"apiserver", "supervisor"}:
                line = following.stdout.readline()
                assert line, f"ended with {seen}"
                seen.add(line.split()[0])
            following.send_signal(signal.SIGINT)
            following.communicate(timeout=60)
        finally:
            following.kill()
    assert following.returncode == 0


def test_logs_of_a_part_that_never_ran(control_plane: RunningCluster) -> None:
    assert "engine has written nothing" in control_plane.moor("logs", "engine", status=1).stderr


def test_images_of_a_cluster_without_a_node(control_plane: RunningCluster) -> None:
    for arguments in (("list",), ("remove", "x"), ("import", "/etc/passwd", "x")):
        errors = control_plane.moor("image", *arguments, status=1).stderr
        assert "this cluster has no node, and so no images" in errors
    errors = control_plane.moor("image", "import", "/etc/passwd", "X Y", status=2).stderr
    assert "invalid reference format" in errors


def _completed(*words: str) -> list[str]:
    """What a shell offers for the last word."""
    done = subprocess.run(
        MOOR, capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "_MOOR_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words),
             "COMP_CWORD": str(len(words) - 1)},
    )  # fmt: skip
    assert not done.stderr
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_pods_and_namespaces_are_completed(control_plane: RunningCluster) -> None:
    skip_without_kubectl()
    command = ("moor", "explain", "--data-dir", str(control_plane.data_dir))
    control_plane.apply(pod("whale"), pod("wasp"))
    try:
        assert _completed(*command, "pod/wh") == ["pod/whale"]
        assert _completed(*command, "wa") == ["wasp"]
        assert _completed(*command, "") == ["pod/wasp", "pod/whale"]
        assert _completed(*command, "-n", "kube-s") == ["kube-system"]
        assert _completed(*command, "-n", "kube-system", "pod/w") == []
    finally:
        control_plane.kubectl("delete", "pod", "whale", "wasp", "--wait=false")


def test_completion_without_a_cluster_offers_nothing_and_says_nothing(tmp_path: Path) -> None:
    assert _completed("moor", "explain", "--data-dir", str(tmp_path), "pod/w") == []
    assert _completed("moor", "image", "remove", "--data-dir", str(tmp_path), "x") == []
    assert _completed("moor", "logs", "a") == ["apiserver"]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("file/below", "file is not a directory"),
        ("loop", "it has a loop of symbolic links"),
        ("other", "is not a cluster's directory and is not empty (thesis.tex)"),
        ("x" * 300, "File name too long"),
        ("/".join(["y" * 100] * 12), "is longer than 1024 bytes"),
        ("/proc/none/below", "cannot be used for a cluster"),
    ],
    ids=lambda value: value[:20],
)
def test_up_rejects_an_unusable_data_dir_in_one_line(
    tmp_path: Path, place: str, message: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    done = moor("up", "--no-node", "--detach", "--data-dir", tmp_path / place)
    assert done.status == 1
    assert message in done.err
    assert len(done.err.splitlines()) == 1
    assert (tmp_path / "other" / "thesis.tex").exists()


def test_up_takes_a_new_file_system(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    refused = moor("up", "--no-node", "--pod-network", "x", "--data-dir", tmp_path)
    assert refused.status == 1
    assert "not an IPv4 network" in refused.err


def test_ctrl_c_prints_how_to_resume(tmp_path: Path) -> None:
    argv = [*MOOR, "up", "--no-node", "--data-dir", str(tmp_path / "d")]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as up:
        assert up.stdout is not None
        try:
            while "cluster ready" not in (line := up.stdout.readline()):
                assert line, "ended"
            up.send_signal(signal.SIGINT)
            _, output = up.communicate(timeout=60)
        finally:
            up.kill()
    assert up.returncode == 0
    assert f"`moor up --data-dir {tmp_path / 'd'}` resumes the cluster" in output


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
    assert [context["name"] for context in yaml.safe_load(own.read_text())["contexts"]] == [
        "mine",
        "moorage",
    ]
    control_plane.moor("kubeconfig", "--unmerge", "--file", str(own))
    assert yaml.safe_load(own.read_text())["contexts"] == [kept]


def test_a_cluster_resumes_with_everything_in_it(tmp_path: Path) -> None:
    skip_without_kubectl()
    with running(tmp_path / "data", has_node=False) as cluster:
        cluster.kubectl("create", "configmap", "kept", "--from-literal=a=b")
        before = cluster.get("configmap", "kept")
        cluster.moor("down")
        cluster.moor("status", status=3)
        cluster.moor("up", "--detach", "--no-node")
        assert cluster.get("configmap", "kept") == before
        output = cluster.moor("down").stdout
        assert "stopped" in output
        cluster.moor("up", "--detach", "--no-node", "--node-name", "other", status=1)
        cluster.moor("up", "--detach", "--no-node")
