"""Directories of the host that an agent can have, and releases of Helm among objects."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.attach.class_uses import Release, is_of_release, releases_of
from moorage.attach.host_paths import path_problems
from moorage.attach.manifests.runtime_agent import DATA_DIRECTORY
from moorage.attach.values import AgentValues, ControllersValues, Values

_HIDES = "it would hide the agent's own files; name a directory below it"
_BAD = 'a path that is mounted has no ".." and no ":"'
_HAS = "the agent has it anyway"


@pytest.mark.parametrize(
    ("values", "problems"),
    [
        ({}, []),
        ({"host_paths": ("/opt/kata", "/srv/")}, []),
        ({"host_paths": ("/opt/kata", "//opt/kata/")},
         ["agent.hostPaths: //opt/kata/: it is there twice"]),
        ({"host_paths": ("/tmp",)}, ["agent.hostPaths: /tmp: the agent has its own"]),
        ({"host_paths": (DATA_DIRECTORY,)}, [f"agent.hostPaths: {DATA_DIRECTORY}: {_HAS}"]),
        ({"host_paths": ("/etc/containerd",)}, [f"agent.hostPaths: /etc/containerd: {_HAS}"]),
        ({"host_paths": ("/etc/containerd",), "installs_runtimes": False}, []),
        *(({"host_paths": (path,)}, [f"agent.hostPaths: {path}: {_HIDES}"])
          for path in ("/", "/bin", "/dev", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr")),
        ({"host_paths": ("/usr/local",)}, []),
        ({"host_paths": ("/a/../b",)}, [f"agent.hostPaths: /a/../b: {_BAD}"]),
        ({"host_paths": ("/a:b",)}, [f"agent.hostPaths: /a:b: {_BAD}"]),
        ({"cri": "unix:///run/k3s/containerd/c.sock"}, []),
        ({"cri": "unix:///run/k3s/c.sock", "host_paths": ("/run/k3s",)}, []),
        ({"cri": "unix:///tmp/c.sock"},
         ["agent.cri: the socket's directory /tmp cannot be mounted: the agent has its own"]),
        ({"cri": "unix:///c.sock"},
         [f"agent.cri: the socket's directory / cannot be mounted: {_HIDES}"]),
    ],
)  # fmt: skip
def test_directories_that_cannot_be_mounted(values: dict[str, Any], problems: list[str]) -> None:
    assert list(path_problems(AgentValues(**values))) == problems


def _obj(kind: str = "ClusterRole", namespace: str = "", **annotations: str) -> dict[str, Any]:
    meta = {
        "name": "a",
        "annotations": {f"meta.helm.sh/{key}": v for key, v in annotations.items()},
    }
    return {"kind": kind, "metadata": meta | ({"namespace": namespace} if namespace else {})}


_OF_HELM = {"release-name": "m", "release-namespace": "ns"}


def test_releases_are_those_of_objects_outside_of_namespaces() -> None:
    objects = [
        _obj(**_OF_HELM),
        _obj(**_OF_HELM),
        _obj(**{"release-name": "b"}),
        _obj(namespace="users", **{"release-name": "stolen"}),
        _obj("CustomResourceDefinition", **{"release-name": "kept"}),
        _obj(),
        {"kind": "ClusterRole", "metadata": {"name": "a"}},
    ]
    assert releases_of(objects) == (Release("b", ""), Release("m", "ns"))
    assert [is_of_release(obj) for obj in objects] == [True] * 5 + [False] * 2


def test_a_release_is_removed_by_its_quoted_name() -> None:
    assert Release("a b", "ns").removal == "helm uninstall 'a b' -n ns"


@pytest.mark.parametrize(
    ("values", "is_valid"),
    [
        ({"webhook": {"replicas": 1}}, True),
        ({"webhook": {"replicas": 9}}, True),
        ({"webhook": {"replicas": 0}}, False),
        ({"controllers": {"replicas": 10}}, False),
        ({"webhook": {"failurePolicy": "Maybe"}}, False),
        ({"namespace": "a" * 63}, True),
        ({"namespace": "a" * 64}, False),
        ({"namespace": "Upper"}, False),
        ({"excludedNamespaces": ["a.b"]}, False),
        ({"image": "a:1 $(X)"}, False),
        ({"agent": {"cri": "tcp://x"}}, False),
        ({"agent": {"hostPaths": ["relative"]}}, False),
        ({"agent": {"restartCommand": " x"}}, False),
        ({"agent": {"restartCommand": "x $(Y)"}}, False),
        ({"ui": {"tlsSecret": "-a"}}, False),
        ({"logLevel": "loud"}, False),
        ({"unheard": 1}, False),
    ],
)  # fmt: skip
def test_values_are_validated_by_their_types(values: dict[str, Any], *, is_valid: bool) -> None:
    try:
        msgspec.convert(values, Values)
    except msgspec.ValidationError:
        assert not is_valid
    else:
        assert is_valid


def test_the_default_values_are_the_documented_ones() -> None:
    values = Values(namespace="ours", excluded_namespaces=("theirs",))
    assert values.unguarded_namespaces == ("kube-system", "ours", "moorage-probes", "theirs")
    assert (values.webhook.replicas, values.webhook.failure_policy) == (2, "Fail")
    assert (ControllersValues().replicas, ControllersValues().create_classes) == (2, True)
    assert values.agent.tolerations == ({"operator": "Exists"},)
    assert values.agent.node_selector == {"kubernetes.io/os": "linux"}
    assert (values.agent.installs_runtimes, values.create_namespace) == (True, True)
    assert (values.ui.enabled, values.scheduler.enabled) == (True, False)
    assert (values.certificates, values.image_pull_policy, values.log_level) == (
        "own", "IfNotPresent", "info",
    )  # fmt: skip
    assert Values().namespace == "moorage-system"
