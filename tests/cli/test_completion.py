"""Which names are offered for what was typed, and that what fails offers nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import click
import pytest
from click.testing import CliRunner

from moorage.cli.commands.explain import command
from moorage.cli.completion import (
    ask,
    complete_images,
    complete_namespaces,
    complete_pods,
    pod_completions,
)
from moorage.cli.connection import Target
from moorage.cli.errors import CliError
from moorage.cluster.layout import Layout
from moorage.wire.client import resources
from moorage.wire.client.config import ClientConfig
from moorage.wire.cri import pb
from tests.cli.moor import FakeEngine, FakeFactory, cluster, locked, serving, with_kubeconfig

PODS = {"default": ["wasp", "whale", "pony"], "kube-system": ["dns"]}
Complete = Callable[[click.Context, click.Parameter, str], list[str]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return cluster(tmp_path).root


class Api(FakeFactory):
    """An API with the pods above, and its requests."""

    def __init__(self, run: Path) -> None:
        super().__init__(run)
        self.asked: list[Any] = []

    def client(self, config: ClientConfig, user_agent: str) -> Any:
        self.asked.append((config.server, user_agent))
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.asked.append("closed")

    async def list(self, resource: object, namespace: str | None) -> Any:
        self.asked.append((resource, namespace))
        names = PODS if resource is resources.NAMESPACES else PODS[str(namespace)]
        return SimpleNamespace(
            items=[SimpleNamespace(metadata=SimpleNamespace(name=name)) for name in names]
        )

    def offered(self, complete: Complete, incomplete: str, **typed: object) -> Sequence[str]:
        context = click.Context(command, obj=self)
        context.params.update(typed)
        return complete(context, command.params[0], incomplete)


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return Api(tmp_path)


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
def test_pods(incomplete: str, expected: list[str]) -> None:
    assert pod_completions(sorted(PODS["default"]), incomplete) == expected


def test_names_are_those_of_the_api(root: Path, api: Api) -> None:
    layout = with_kubeconfig(Layout(root))
    with locked(layout):
        pods = api.offered(complete_pods, "d", data_dir=root, namespace="kube-system")
        assert pods == ["dns"]
        assert api.offered(complete_pods, "wh", data_dir=root) == ["whale"]
        assert api.offered(complete_namespaces, "", data_dir=root) == ["default", "kube-system"]
        assert api.offered(complete_namespaces, "k", data_dir=root) == ["kube-system"]
    opened = ("https://api.example:6443", "moor-completion")
    requests = [
        (resources.PODS, "kube-system"), (resources.PODS, "default"),
        *[(resources.NAMESPACES, None)] * 2,
    ]  # fmt: skip
    assert api.asked == [step for request in requests for step in (opened, request, "closed")]


def test_images_by_their_names_or_ids(tmp_path: Path, api: Api) -> None:
    layout = cluster(tmp_path, cluster_id="c")
    images = [pb.Image(id="sha256:aa", repo_tags=["b:2", "b:1"]), pb.Image(id="sha256:dd")]
    with serving(FakeEngine(images=images), tmp_path / "c/engine.sock"):
        assert api.offered(complete_images, "", data_dir=layout.root) == ["b:1", "b:2", "sha256:dd"]
        assert api.offered(complete_images, "b:1", data_dir=layout.root) == ["b:1"]
    assert api.offered(complete_images, "", data_dir=layout.root) == []


def test_the_directory_is_that_of_the_environment_where_none_was_typed(
    root: Path, tmp_path: Path
) -> None:
    for directory, answers in ((root, [str(root)]), (tmp_path / "none", [])):
        with CliRunner(env={"MOORAGE_DATA_DIR": str(directory)}).isolation():
            assert ask(as_the_shell_does(), answer) == answers


def as_the_shell_does() -> click.Context:
    return command.make_context("explain", [], resilient_parsing=True)


async def answer(target: Target) -> list[str]:
    assert target.cluster is not None
    return [str(target.cluster.directory)]


def typed(root: Path) -> click.Context:
    context = click.Context(command)
    context.params["data_dir"] = root
    return context


@pytest.mark.parametrize("error", [CliError("x"), OSError("x"), TimeoutError(), KeyError("x")])
def test_what_people_can_act_on_offers_nothing(root: Path, error: Exception) -> None:
    async def fail(_target: Target) -> list[str]:
        raise error

    if isinstance(error, KeyError):
        # A mistake of ours is not hidden.
        with pytest.raises(KeyError):
            ask(typed(root), fail)
    else:
        assert ask(typed(root), fail) == []


def test_an_answer_that_takes_too_long_is_not_waited_for(root: Path) -> None:
    async def hang(_target: Target) -> list[str]:
        never: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        return await never

    assert ask(typed(root), hang, within_s=0.01) == []
