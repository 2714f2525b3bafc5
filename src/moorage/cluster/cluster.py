"""Cluster object: creates, starts, connects to and stops the cluster in a data directory.

    async with Cluster("/tmp/c", Choices(has_node=False)) as cluster:
        async with cluster.client() as client:
            await client.list(RUNTIME_CLASSES)

The command line, the demo and the tests use it; the tests of an operator can too. Modules are
imported by the methods that need them, so that a command that only reads a cluster stays small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from moorage.cluster.errors import CannotRunPodsError, ClusterError, NotRunningError, StartError
from moorage.cluster.layout import RUN, Layout
from moorage.cluster.reservations import Reservations
from moorage.cluster.settings import Choices, Settings, load
from moorage.cluster.supervision.supervisor import running_pid

if TYPE_CHECKING:
    from subprocess import Popen

    from moorage.cluster.access.kubeconfig import Access
    from moorage.cluster.supervision.supervise import PartStatus
    from moorage.engine.handlers import Handler
    from moorage.wire.client.rest import Client
    from moorage.wire.cri import Probed

READY_S = 60.0
"""Default deadline of a start, in seconds."""


@dataclass(frozen=True, slots=True)
class HostCheck:
    """Result of a host check that passed.

    `handlers` are the host's, none with an external engine or without a node. `warning` names what
    an external engine lacks.
    """

    handlers: tuple[Handler, ...] = ()
    warning: str = ""


class ClusterActions:
    """What a cluster does to its host and its processes; a test gives a `Cluster` others.

    Each method does what the function of its name does, and imports it when it is called.
    """

    async def require_machine(
        self, layout: Layout, *, is_installing: bool, report: Callable[[str], None] | None
    ) -> tuple[Handler, ...]:
        from moorage.cluster.host.start_check import require_machine

        return await require_machine(layout, is_installing=is_installing, report=report)

    async def probe(self, endpoint: str) -> Probed:
        from moorage.wire.cri import probe

        return await probe(endpoint)

    def open_cluster(
        self, layout: Layout, choices: Choices, reservations: Reservations
    ) -> Settings:
        from moorage.cluster.creation import open_cluster

        return open_cluster(layout, choices, reservations)

    async def start_supervisor(
        self, layout: Layout, within_s: float, reservations: Reservations | None
    ) -> Popen[bytes] | None:
        from moorage.cluster.supervision.start import start_supervisor

        return await start_supervisor(layout, within_s, reservations)

    def become_supervisor(
        self, layout: Layout, reservations: Reservations, merged_into: str
    ) -> None:
        from moorage.cluster.supervision.supervise import become_supervisor

        become_supervisor(layout, reservations, merged_into)

    async def stop_supervisor(self, layout: Layout) -> bool:
        from moorage.cluster.teardown import stop_supervisor

        return await stop_supervisor(layout)

    async def clear_host(self, layout: Layout, settings: Settings, *, abandons_pods: bool) -> None:
        from moorage.cluster.teardown import clear_host_apart

        await clear_host_apart(layout, settings, abandons_pods=abandons_pods)

    def forget(self, directory: Path) -> None:
        from moorage.linux.id_register import forget

        forget(directory)

    def open_client(self, kubeconfig: Path, user_agent: str) -> Client:
        from moorage.wire.client.config import load_kubeconfig
        from moorage.wire.client.rest import Client

        return Client(load_kubeconfig(kubeconfig), user_agent=user_agent)


class Cluster:
    """The cluster in a data directory, running or not.

    `async with`, or `with` outside an event loop, starts it, creating it if the directory has none,
    and stops it with its pods at the end; its data stays until `delete`. `choices` apply at a
    start; those that are given are stored in the directory for later starts. `ready_within_s` is
    the deadline of a start. `run` has the directory of its engine.
    """

    def __init__(
        self,
        directory: Path | str,
        choices: Choices | None = None,
        *,
        ready_within_s: float = READY_S,
        run: Path = RUN,
        actions: ClusterActions | None = None,
    ) -> None:
        # Links are followed now, since the kernel lists mounts by their real paths.
        self.layout = Layout(Path(directory).resolve(), run)
        self._actions = actions or ClusterActions()
        self.choices = choices or Choices()
        self._ready_within_s = ready_within_s
        self._reservations: Reservations | None = None
        self._check: HostCheck | None = None
        self._supervisor: Popen[bytes] | None = None

    @property
    def directory(self) -> Path:
        """The data directory, absolute."""
        return self.layout.root

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, which exists once the cluster is created."""
        return self.layout.kubeconfig

    @property
    def pid(self) -> int | None:
        """The process ID of the cluster's supervisor, None while the cluster is down."""
        return running_pid(self.layout)

    @property
    def parts(self) -> tuple[PartStatus, ...]:
        """The status of each of the cluster's processes, none while the cluster is down."""
        from moorage.cluster.supervision.supervise import part_statuses

        return part_statuses(self.layout)

    @property
    def access(self) -> Access:
        """The API's URL and the administrator's certificate. Raises NotRunningError."""
        from moorage.cluster.creation import access

        return access(self.layout, self.settings)

    def find_settings(self) -> Settings | None:
        """Return the cluster's settings, None if the directory has no cluster.

        Raises SettingsError for a damaged file.
        """
        return load(self.layout.settings)

    @property
    def settings(self) -> Settings:
        """The cluster's settings. Raises NotRunningError if the directory has no cluster."""
        settings = self.find_settings()
        if settings is None:
            raise NotRunningError(f"there is no cluster in {self.directory}; `moor up` makes one")
        return settings

    def running_settings(self) -> Settings:
        """Return the settings of a running cluster. Raises NotRunningError if it does not run."""
        settings = self.settings
        if self.pid is None:
            raise NotRunningError(
                f"the cluster in {self.directory} is not running; `moor up` resumes it"
            )
        return settings

    def client(self, user_agent: str = "moorage") -> Client:
        """Return an API client with the administrator's rights, to be used in `async with`.

        Raises ConfigError if the kubeconfig is damaged, OSError if there is none.
        """
        return self._actions.open_client(self.kubeconfig, user_agent)

    def check_directory(self) -> None:
        """Check that the directory has a cluster, or that one can be created there.

        Raises SettingsError if it cannot be written to, or holds anything else.
        """
        from moorage.cluster.layout import check_directory

        check_directory(self.directory)

    async def check_host(
        self, *, is_installing: bool = False, report: Callable[[str], None] | None = None
    ) -> HostCheck:
        """Check that the host, or the engine given as `cri`, can run the cluster's pods.

        `is_installing`: install missing Debian packages first; `report` receives a sentence before
        that. Checks nothing if `choices.has_node` is False.

        Raises CannotRunPodsError, which lists what is missing, with remedies.
        """
        self._check = await self._checked(is_installing=is_installing, report=report)
        return self._check

    async def _checked(
        self, *, is_installing: bool, report: Callable[[str], None] | None
    ) -> HostCheck:
        if self.choices.has_node is False:
            return HostCheck()
        endpoint = self.choices.cri
        if endpoint is None:
            present = self.find_settings()
            endpoint = present.cri if present is not None else ""
        if endpoint:
            return await self._check_engine(endpoint)
        handlers = await self._actions.require_machine(
            self.layout, is_installing=is_installing, report=report
        )
        return HostCheck(handlers)

    async def _check_engine(self, endpoint: str) -> HostCheck:
        from moorage.wire.cri import UnusableEngineError

        try:
            probed = await self._actions.probe(endpoint)
        except UnusableEngineError as error:
            raise CannotRunPodsError(str(error)) from error
        complaint = probed.complaint
        return HostCheck(warning=f"the engine at {endpoint}: {complaint}" if complaint else "")

    def create(self) -> Settings:
        """Create settings, keys and kubeconfig, or apply the choices to an existing cluster.

        Ports and networks stay reserved for this object until `start` or `run_in_foreground`.
        Returns the settings. Blocks while another process creates or stops the cluster.

        Raises SettingsError for choices that contradict each other or the existing cluster, and
        for a directory that is not a cluster's; NoSubnetError and SubnetTakenError for its
        network; AlreadyRunningError while it runs; LostKeyError and AuthorityError for its keys;
        ClusterError if the directory cannot be written to.
        """
        self.check_directory()
        # Those of an earlier call would be in the way of this one.
        self._release()
        reservations = Reservations()
        try:
            settings = self._actions.open_cluster(self.layout, self.choices, reservations)
        except OSError as error:
            reservations.close()
            raise ClusterError(
                f"{self.directory} cannot be used for a cluster: {error.strerror}; choose another "
                "directory with --data-dir"
            ) from error
        except BaseException:
            reservations.close()
            raise
        self._reservations = reservations
        return settings

    async def start(self) -> None:
        """Start the cluster in processes of its own; return when it is ready.

        Calls `check_host` and `create` unless they were called. Cancellation stops the processes.

        Raises what those raise, and StartError if the cluster ends or is not ready in time; in the
        second case its processes keep running.
        """
        await self._prepare()
        await self._start()

    async def _prepare(self) -> None:
        import asyncio

        if self._check is None:
            await self.check_host()
        if self._reservations is None:
            await asyncio.to_thread(self.create)

    async def _start(self) -> None:
        try:
            self._supervisor = await self._actions.start_supervisor(
                self.layout, self._ready_within_s, self._reservations
            )
        finally:
            # The supervisor has inherited them.
            self._release()

    def run_in_foreground(self, merged_into: str = "") -> None:
        """Replace this process with the cluster's supervisor; does not return.

        `merged_into` is the kubeconfig to which the cluster was added, for the message once the
        cluster is ready. Call `create` first.
        """
        reservations = self._reservations or Reservations()
        self._actions.become_supervisor(self.layout, reservations, merged_into)

    async def stop(self, *, keeps_pods: bool = False, abandons_pods: bool = False) -> bool:
        """Stop the cluster's processes and its pods, and remove what it has on the host.

        `keeps_pods`: pods keep running, and the next start adopts them. `abandons_pods`: pods on an
        external engine are left to it. The data stays. Returns whether the cluster was running.
        Waits while another process creates or stops the cluster.

        Raises NotRunningError if the directory has no cluster, StopError if the supervisor does not
        end, LeftoverError and CommandError if something cannot be removed.
        """
        from moorage.linux.locks import exclusive_async

        settings = self.settings
        self._release()
        async with exclusive_async(self.layout.change_lock):
            was_running = await self._actions.stop_supervisor(self.layout)
            if self._supervisor is not None:
                # Reap it: a caller that keeps running would keep a zombie.
                self._supervisor.poll()
            if not keeps_pods:
                await self._actions.clear_host(self.layout, settings, abandons_pods=abandons_pods)
        return was_running

    def delete(self) -> None:
        """Delete the data directory of a stopped cluster.

        Raises SettingsError if it is not a cluster's, OSError if it cannot be deleted.
        """
        from moorage.linux.trees import remove_tree

        self.check_directory()
        remove_tree(self.directory)
        self._actions.forget(self.layout.node / "pods")

    async def __aenter__(self) -> Self:
        """Start the cluster; a failed start is stopped again with its pods. Raises as `start`."""
        from moorage.cluster.completion import complete

        await self._prepare()
        try:
            await self._start()
        except StartError as error:
            # A supervisor that runs after ours has ended was started by another process.
            if not error.has_ended or self.pid is None:
                await complete(self.stop())
            raise
        except BaseException:
            await complete(self.stop())
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the cluster and its pods, also when cancelled."""
        from moorage.cluster.completion import complete

        await complete(self.stop())

    def __enter__(self) -> Self:
        """Start the cluster as `async with` does. Raises RuntimeError inside an event loop."""
        import asyncio

        return asyncio.run(self.__aenter__())

    def __exit__(self, *_: object) -> None:
        """Stop the cluster and its pods."""
        import asyncio

        asyncio.run(self.__aexit__())

    def _release(self) -> None:
        if self._reservations is not None:
            self._reservations.close()
            self._reservations = None
