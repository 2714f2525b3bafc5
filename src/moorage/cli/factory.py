"""Factory of what commands work with: clusters, clients, processes, facts of this machine.

As kubectl's `cmdutil.Factory`, it is the one place through which commands reach outside their
process, so that `main` can be given another. Modules are imported by the methods that need them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from moorage.cluster.layout import RUN

if TYPE_CHECKING:
    from subprocess import Popen

    from moorage.attach.outcome import Outcome
    from moorage.cli.handlers import HandlersInUse
    from moorage.cluster import Choices, Cluster
    from moorage.cluster.cluster import ClusterActions
    from moorage.cluster.daemon import Service
    from moorage.cluster.host import Inventory
    from moorage.cluster.host.findings import Finding
    from moorage.cluster.layout import Layout
    from moorage.engine.engine import Engine
    from moorage.engine.handlers import Handler
    from moorage.engine.options import EngineOptions
    from moorage.inspect.demo import Demo
    from moorage.inspect.demo_network import NetworkShown
    from moorage.inspect.demo_runtimes import RuntimesShown
    from moorage.inspect.explain import PodExplanation
    from moorage.inspect.manifests import Manifest
    from moorage.wire.client.config import ClientConfig
    from moorage.wire.client.rest import Client


class Factory:
    """Makes clusters whose engines run below `run` and which act on the host by `actions`."""

    progress_s = 1.0
    """Time between two updates of a progress line."""

    def __init__(self, run: Path = RUN, actions: ClusterActions | None = None) -> None:
        self._run = run
        self._actions = actions

    def cluster(self, directory: Path, choices: Choices | None = None, **options: Any) -> Cluster:
        from moorage.cluster import Cluster

        return Cluster(directory, choices, run=self._run, actions=self._actions, **options)

    def client(self, config: ClientConfig, user_agent: str) -> Client:
        from moorage.wire.client.rest import Client

        return Client(config, user_agent=user_agent)

    @property
    def users_kubeconfig(self) -> Path:
        """The kubeconfig that kubectl uses by default."""
        return Path.home() / ".kube" / "config"

    # this machine

    def euid(self) -> int:
        return os.geteuid()

    def find_program(self, name: str, path: str | None = None) -> str | None:
        import shutil

        return shutil.which(name, path=path)

    async def inspect_machine(
        self, layout: Layout, **options: Any
    ) -> tuple[Inventory, tuple[Handler, ...]]:
        from moorage.cluster.host.start_check import inspect_machine

        return await inspect_machine(layout, **options)

    async def handlers_in_use(self, layout: Layout, installed: Iterable[Handler]) -> HandlersInUse:
        from moorage.cli.handlers import handlers_in_use

        return await handlers_in_use(layout, installed)

    def examine(
        self, host: Inventory, handlers: Sequence[Handler], directories: Sequence[Path]
    ) -> tuple[Finding, ...]:
        from moorage.cluster.host.findings import examine

        return examine(host, handlers, directories)

    # processes

    def service(self) -> Service:
        """Return the service manager that started this process."""
        from moorage.cluster.daemon import Service

        return Service.taken_from_environment()

    def configure_logs(self, level: str) -> None:
        from moorage.api.logs import configure

        configure(level)

    def calm_collector(self) -> None:
        from moorage.cluster.daemon import calm_collector

        calm_collector()

    def start_part(
        self,
        work: Callable[[Callable[[], None]], Coroutine[Any, Any, None]],
        ready: Callable[[], None],
    ) -> Coroutine[Any, Any, None]:
        """Return the running of a part, which calls `ready`."""
        return work(ready)

    def run_engine(self, options: EngineOptions) -> AbstractAsyncContextManager[Engine]:
        from moorage.engine.engine import running

        return running(options)

    def start_program(self, argv: Sequence[str]) -> Popen[bytes]:
        """Start a program whose standard output is a pipe, and whose errors are not shown."""
        import subprocess

        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def become_program(self, argv: list[str]) -> None:
        """Replace this process by a program."""
        os.execv(argv[0], argv)

    # what is inspected

    async def explain_pod(
        self, client: Client, namespace: str, name: str, **facts: Any
    ) -> PodExplanation:
        from moorage.inspect.explain import explain_pod

        return await explain_pod(client, namespace, name, **facts)

    async def read_outcome(self, client: Client) -> Outcome:
        from moorage.attach.outcome import read_outcome

        return await read_outcome(client)

    def demo(
        self, client: Client, manifests: list[Manifest], report: Callable[[str], None]
    ) -> Demo:
        from moorage.inspect.demo import Demo

        return Demo(client, manifests, report)

    async def show_runtimes(self, client: Client, report: Callable[[str], None]) -> RuntimesShown:
        from moorage.inspect.demo_runtimes import show_runtimes

        return await show_runtimes(client, report)

    async def show_network(
        self, client: Client, runtime_class: str, report: Callable[[str], None]
    ) -> NetworkShown:
        from moorage.inspect.demo_network import show_network

        return await show_network(client, runtime_class, report)

    async def read_features(self, client: Client, within_s: float) -> tuple[Any, ...]:
        from moorage.inspect.demo_runtimes import read_features

        return await read_features(client, within_s)


def factory() -> Factory:
    """Return the factory that the running command was given, a plain one outside a command."""
    context = click.get_current_context(silent=True)
    return (context.find_object(Factory) if context is not None else None) or Factory()
