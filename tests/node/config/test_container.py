from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moorage.node.config.container import ContainerSetting, container_config
from moorage.node.config.errors import ConfigError
from moorage.node.config.security import ImageUser, SecurityDefaults
from moorage.wire.cri import pb
from tests.node.objects import UID, a_pod, wire_container


def config(**fields: Any) -> pb.ContainerConfig:
    setting: dict[str, Any] = {
        "restart_count": 2,
        "image_ref": "sha256:abc",
        "image_user": ImageUser(uid=0),
        "environment": {"A": "one", "RAW": "\udcff"},
        "mounts": [pb.Mount(container_path="/data", host_path="/x")],
        "security": SecurityDefaults(seccomp_dir=Path("/seccomp")),
        "memory_capacity_bytes": 1 << 33,
        "oom_score_floor": -1000,
    }
    setting_fields = {
        key: fields.pop(key) for key in list(fields) if key in ("user_namespace", "target")
    }
    pod = a_pod(wire_container(**fields))
    return container_config(
        pod, pod.spec.containers[0], ContainerSetting(**(setting | setting_fields))
    )


def test_what_runs() -> None:
    configuration = config(command=["sh", "-c", "$(A) $$(A) $(B)"], args=["$(A)"], workingDir="/w")
    assert list(configuration.command) == ["sh", "-c", "one $(A) $(B)"]
    assert list(configuration.args) == ["one"]
    assert configuration.working_dir == "/w"
    assert configuration.image == pb.ImageSpec(image="sha256:abc", user_specified_image="app:1")


def test_variables_go_as_bytes() -> None:
    assert [(variable.key, variable.value) for variable in config().envs] == [
        ("A", b"one"),
        ("RAW", b"\xff"),
    ]


def test_attempt_log_and_identity_agree() -> None:
    configuration = config()
    assert configuration.metadata == pb.ContainerMetadata(name="app", attempt=2)
    assert configuration.log_path == "app/2.log"
    assert configuration.labels["io.kubernetes.container.name"] == "app"
    assert configuration.labels["io.kubernetes.pod.uid"] == UID
    assert configuration.annotations["io.kubernetes.container.restartCount"] == "2"


@pytest.mark.parametrize(
    ("lifecycle", "wanted"),
    [
        ({}, pb.RUNTIME_DEFAULT),
        ({"stopSignal": "SIGUSR1"}, pb.SIGUSR1),
        ({"stopSignal": "SIGRTMIN"}, pb.SIGRTMIN),
    ],
)
def test_stop_signals(lifecycle: dict[str, Any], wanted: int) -> None:
    assert config(lifecycle=lifecycle).stop_signal == wanted


def test_an_unknown_stop_signal_is_refused() -> None:
    with pytest.raises(ConfigError, match='unknown stop signal "SIGODD"'):
        config(lifecycle={"stopSignal": "SIGODD"})


def test_mounts_are_seen_with_the_pods_own_users() -> None:
    mapping = pb.IDMapping(host_id=65536, container_id=0, length=65536)
    configuration = config(
        user_namespace=pb.UserNamespace(mode=pb.POD, uids=[mapping], gids=[mapping])
    )
    assert list(configuration.mounts[0].uidMappings) == [mapping]
    assert list(configuration.mounts[0].gidMappings) == [mapping]
    assert configuration.linux.security_context.namespace_options.userns_options.mode == pb.POD


def test_terminal_and_input() -> None:
    configuration = config(tty=True, stdin=True, stdinOnce=True)
    assert (configuration.tty, configuration.stdin, configuration.stdin_once) == (True, True, True)
