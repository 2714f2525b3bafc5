"""Node agent alone, in the place of a kubelet, on any container engine that speaks the CRI."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from moorage.api.clock import SystemClock
from moorage.api.logs import Log
from moorage.api.meta import ObjectReference
from moorage.attach.processes.connection import connected_to
from moorage.cluster.engine.handlers import NodeEvents, follow_handlers, read_handlers
from moorage.cluster.engine.target import Target, installer_of
from moorage.cluster.errors import ClusterError
from moorage.cluster.layout import Layout
from moorage.cluster.parts.node import OtherStoreError, hold_to_store, install_package
from moorage.linux.descriptors import raise_descriptor_limit
from moorage.linux.host import Host
from moorage.node.agent import COMPONENT, run_node
from moorage.node.machine.machine import this_machine
from moorage.node.options import NodeOptions
from moorage.runtimes.installing.following import InstallationFollower
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.recorder import EventRecorder
from moorage.wire.client.resources import RUNTIME_INSTALLATIONS
from moorage.wire.client.served import run_when_served
from moorage.wire.cri import CriClient, engine_pb

log = Log(__name__)


class ForeignPodsError(ClusterError):
    """The pods on this node are of another API server's store."""


async def run(
    config: ClientConfig,
    endpoint: str,
    data_dir: Path,
    options: NodeOptions,
    host: Host,
    ready: Callable[[], None],
    *,
    restart_command: Sequence[str] = (),
) -> None:
    """Run until cancelled, which leaves the pods running; call `ready` with the API reached.

    `restart_command` restarts an engine that is no systemd service, for RuntimeInstallations.

    Raises ApiUnusableError, ForeignPodsError; OSError if the agent's port is in use.
    """
    raise_descriptor_limit()
    machine = await asyncio.to_thread(this_machine, options.root_dir, host)
    node = ObjectReference(kind="Node", name=options.name, uid=options.name, api_version="v1")
    async with (
        CriClient(endpoint) as cri,
        connected_to(config, "moorage-node") as client,
        asyncio.TaskGroup() as tasks,
    ):
        try:
            await hold_to_store(client, options.name, Layout(data_dir))
        except OtherStoreError as error:
            raise ForeignPodsError(str(error)) from error
        changed = asyncio.Event()
        recorder = EventRecorder(client, COMPONENT, host=options.name)
        tasks.create_task(recorder.run())
        tasks.create_task(
            follow_handlers(cri, NodeEvents(recorder, node), partial(_notify, changed))
        )
        follower = InstallationFollower(
            client,
            options.name,
            Layout(data_dir).runtimes,
            partial(
                installer_of,
                Target(endpoint=endpoint, layout=Layout(data_dir)),
                restart_command=restart_command,
                report=log.warning,
            ),
            recorder,
            install_package=partial(install_package, data_dir),
        )
        tasks.create_task(
            run_when_served(client, RUNTIME_INSTALLATIONS, SystemClock(), follower.run)
        )
        ready()
        await run_node(
            client,
            cri,
            options,
            machine=machine,
            read_handlers=partial(read_handlers, cri),
            engine_changed=changed,
        )


async def _notify(changed: asyncio.Event, handlers: engine_pb.Handlers) -> None:
    """Have the node agent read the handlers."""
    del handlers
    changed.set()
