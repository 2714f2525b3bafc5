"""Values of files and options: merged as Helm does, refused with the name of what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.attach.errors import ValuesError
from moorage.attach.manifests import objects
from moorage.attach.values import AgentValues, Values
from moorage.attach.values_input import read_values


def file(directory: Path, text: str, name: str = "values.yaml") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def test_without_anything_the_values_are_the_default_ones() -> None:
    assert read_values([]) == Values()


def test_later_values_take_precedence_and_maps_are_merged(tmp_path: Path) -> None:
    first = file(tmp_path, "agent: {cri: 'unix:///run/a/x', hostPaths: [/x]}\nlogLevel: debug", "a")
    second = file(tmp_path, "agent: {cri: 'unix:///run/b/x'}\nlogLevel:", "b")
    values = read_values([first, second], ["agent.hostPaths=[/y, /z]", "webhook.replicas=3"])
    assert values.agent == AgentValues(cri="unix:///run/b/x", host_paths=("/y", "/z"))
    assert (values.log_level, values.webhook.replicas) == ("debug", 3)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("replicas", "PATH=VALUE"),
        (".a=1", "PATH=VALUE"),
        ("webhook.replicas=many", r"\$.webhook.replicas"),
        ("webhook.failurePolicy=Maybe", r"\$.webhook.failurePolicy"),
        ("agent.hostPaths=[relative]", r"\$.agent.hostPaths"),
        ("agent.hostPaths=[/opt/x, /opt//x/]", "/opt//x/: it is there twice"),
        ("agent.hostPaths=[/tmp]", "/tmp: the agent has its own"),
        ("agent.hostPaths=[/var/lib/moorage-agent/]", "the agent has it anyway"),
        ("agent.hostPaths=[/etc/crio]", "the agent has it anyway"),
        ("agent.hostPaths=[//]", "it would hide the agent's own files"),
        ("agent.hostPaths=[/opt/../usr]", r'has no "\.\."'),
        ("agent.cri=unix:///x.sock", "the socket's directory / cannot be mounted"),
        ("agent.cri=unix:///tmp/x.sock", "the socket's directory /tmp cannot be mounted"),
        ('image="a\\nb"', "cannot be printed"),
        ('image="a\\n"', "cannot be printed"),
        ('agent.nodeSelector={"a": "b\\n"}', "cannot be printed"),
        ("image=", r"\$.image"),
        ("nosuch=1", "nosuch"),
        ("image=[", "--set"),
    ],
)
def test_a_setting_that_is_wrong_is_named(setting: str, message: str) -> None:
    with pytest.raises(ValuesError, match=message):
        read_values([], [setting])


@pytest.mark.parametrize(("text", "message"), [("- a", "not a map"), ("a: [", "values.yaml")])
def test_a_file_that_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValuesError, match=message):
        read_values([file(tmp_path, text)])


def test_the_directory_of_a_given_socket_replaces_the_usual_one() -> None:
    values = read_values([], ["agent.cri=unix:///run/k3s/x.sock", "agent.hostPaths=[/run/k3s/y]"])
    assert values.agent.host_paths == ("/run/k3s/y",)


@pytest.mark.parametrize(
    "settings",
    [
        ["agent.hostPaths=[/run]"],
        ["agent.hostPaths=[/run/]"],
        ["agent.cri=unix:///run/k3s/x.sock", "agent.hostPaths=[/run/k3s]"],
    ],
)
def test_the_directory_of_the_socket_is_mounted_once(settings: list[str]) -> None:
    values = read_values([], settings)
    (agent,) = [obj for obj in objects(values) if obj["kind"] == "DaemonSet"]
    (container,) = agent["spec"]["template"]["spec"]["containers"]
    paths = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert len(set(paths)) == len(paths)
    assert ("/run/k3s" if "k3s" in settings[0] else "/run") in paths
