"""Which names are offered for what was typed, and that what fails offers nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from moorage.cli import completion
from moorage.cli.commands.explain import command
from moorage.cli.completion import complete_images, complete_namespaces, complete_pods
from moorage.cli.connection import Target
from moorage.cli.errors import CliError
from moorage.cluster import Cluster
from moorage.wire.client import config, resources, rest
from moorage.wire.cri import pb
from tests.cli.moor import FakeEngine, cluster, locked, serving

PODS = {"default": ["wasp", "whale", "pony"], "kube-system": ["dns"]}
Complete = Callable[[click.Context, click.Parameter, str], list[str]]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    async def pods(_target: Target, namespace: str) -> list[str]:
        return PODS[namespace]

    async def namespaces(_target: Target) -> list[str]:
        return list(PODS)

    monkeypatch.setattr(completion, "_pod_names", pods)
    monkeypatch.setattr(completion, "_namespace_names", namespaces)
    return cluster(tmp_path).root


def offered(complete: Complete, incomplete: str, **typed: object) -> list[str]:
    context = click.Context(command)
    context.params.update(typed)
    return complete(context, command.params[0], incomplete)


@pytest.mark.parametrize(
    ("incomplete", "expected"),
    [
        ("", ["pod/pony", "pod/wasp", "pod/whale"]),
        ("w", ["wasp", "whale"]),
        ("wh", ["whale"]),
        ("x", []),
        ("p", ["pod/pony", "pod/wasp", "pod/whale", "pony"]),
        ("po", ["pod/pony", "pod/wasp", "pod/whale", "pony"]),
        ("pon", ["pony"]),
        ("pod", ["pod/pony", "pod/wasp", "pod/whale"]),
        ("pod/", ["pod/pony", "pod/wasp", "pod/whale"]),
        ("pod/w", ["pod/wasp", "pod/whale"]),
        ("pod/x", []),
    ],
)
def test_pods(root: Path, incomplete: str, expected: list[str]) -> None:
    assert offered(complete_pods, incomplete, data_dir=root) == expected


def test_pods_of_the_namespace_that_was_typed(root: Path) -> None:
    assert offered(complete_pods, "", data_dir=root, namespace="kube-system") == ["pod/dns"]
    assert offered(complete_pods, "d", data_dir=root, namespace="kube-system") == ["dns"]


def test_namespaces(root: Path) -> None:
    assert offered(complete_namespaces, "", data_dir=root) == ["default", "kube-system"]
    assert offered(complete_namespaces, "k", data_dir=root) == ["kube-system"]


def test_images_by_their_names_or_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorage.cluster.engine.paths.RUN", tmp_path)
    layout = cluster(tmp_path, cluster_id="c")
    images = [pb.Image(id="sha256:aa", repo_tags=["b:2", "b:1"]), pb.Image(id="sha256:dd")]
    with serving(FakeEngine(images=images), tmp_path / "c/engine.sock"):
        assert offered(complete_images, "", data_dir=layout.root) == ["b:1", "b:2", "sha256:dd"]
        assert offered(complete_images, "b:1", data_dir=layout.root) == ["b:1"]
    assert offered(complete_images, "", data_dir=layout.root) == []


def test_the_directory_is_that_of_the_environment_where_none_was_typed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    option = next(parameter for parameter in command.params if parameter.name == "data_dir")
    monkeypatch.setattr(option, "default", lambda: root)
    assert offered(complete_namespaces, "d") == ["default"]
    monkeypatch.setattr(option, "default", lambda: tmp_path)
    assert offered(complete_namespaces, "d") == []


@pytest.mark.parametrize("error", [CliError("x"), OSError("x"), TimeoutError()])
def test_what_people_can_act_on_offers_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def fail(_target: Target) -> list[str]:
        raise error

    monkeypatch.setattr(completion, "_namespace_names", fail)
    assert offered(complete_namespaces, "", data_dir=root) == []


def test_an_answer_that_takes_too_long_is_not_waited_for(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(_target: Target) -> list[str]:
        never: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        return await never

    monkeypatch.setattr(completion, "_namespace_names", hang)
    monkeypatch.setattr(completion, "_DEADLINE_S", 0.01)
    assert offered(complete_namespaces, "", data_dir=root) == []


def test_a_mistake_of_ours_is_not_hidden(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_target: Target) -> list[str]:
        raise KeyError("x")

    monkeypatch.setattr(completion, "_namespace_names", fail)
    with pytest.raises(KeyError):
        offered(complete_namespaces, "", data_dir=root)


async def test_names_are_those_of_the_api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []

    class Api:
        def __init__(self, config: object, user_agent: str) -> None:
            asked.append((config, user_agent))

        async def __aenter__(self) -> Api:
            return self

        async def __aexit__(self, *_: object) -> None:
            asked.append("closed")

        async def list(self, *arguments: object) -> Any:
            asked.append(arguments)
            return SimpleNamespace(items=[SimpleNamespace(metadata=SimpleNamespace(name="a"))])

    monkeypatch.setattr(rest, "Client", Api)
    monkeypatch.setattr(config, "load_kubeconfig", lambda path: path)
    layout = cluster(tmp_path)
    target = Target(cluster=Cluster(layout.root))
    with locked(layout):
        assert await completion._pod_names(target, "space") == ["a"]
        assert await completion._namespace_names(target) == ["a"]
    opened = (layout.kubeconfig, "moor-completion")
    assert asked == [
        opened, (resources.PODS, "space"), "closed", opened, (resources.NAMESPACES, None), "closed"
    ]  # fmt: skip
