"""Inventory of sandboxes and containers: lookup by id, one holder for each name, records on disk.

An id may be abbreviated as long as the prefix is unique. A sandbox's name is (name, namespace, uid,
attempt), a container's is (its sandbox, name, attempt). A name is reserved from the first step of
creation until the end of removal. Source: CRI, the comments on the two Metadata messages.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from google.protobuf.message import DecodeError

from moorage.api.logs import Log
from moorage.engine.cgroups import CgroupPath, container_cgroup
from moorage.engine.errors import ExhaustedError, InvalidError, NotFoundError, PreconditionError
from moorage.engine.handlers.adapters import Task
from moorage.engine.handlers.definition import CgroupDriver, ShimOptions
from moorage.engine.oci import SandboxContext, SandboxFiles, id_mappings
from moorage.engine.paths import EnginePaths
from moorage.engine.records import ContainerRecord, RecordDirectory, SandboxRecord, Stage
from moorage.linux import pinned
from moorage.linux.cgroups import guest_cgroups
from moorage.linux.idmap import IdMappings
from moorage.wire.cri import pb

log = Log(__name__)

Name = tuple[str | int, ...]


def new_id() -> str:
    """Return a random id of 64 hex digits."""
    return secrets.token_hex(32)


class Sandbox:
    """A sandbox: its record, its decoded configuration, and the lock that serialises changes."""

    def __init__(self, record: SandboxRecord) -> None:
        self.record = record
        self.config = pb.PodSandboxConfig.FromString(record.config)
        self.lock = asyncio.Lock()
        self.oom_kills: int | None = None
        """Processes of the pod killed for memory, as of the last exit; None if not counted."""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def name(self) -> Name:
        return sandbox_name(self.config)

    @property
    def pod(self) -> str:
        """The pod's namespace and name, for messages."""
        return f"{self.config.metadata.namespace}/{self.config.metadata.name}"

    @property
    def namespace_options(self) -> pb.NamespaceOption:
        return self.config.linux.security_context.namespace_options

    @property
    def is_on_host_network(self) -> bool:
        return self.namespace_options.network == pb.NODE

    @property
    def shares_processes(self) -> bool:
        """Whether the pod's containers share a PID namespace, which needs an infra process."""
        return self.namespace_options.pid == pb.POD

    @property
    def hostname(self) -> str:
        """The pod's hostname, or the host's when the pod has the host's network."""
        return os.uname().nodename if self.is_on_host_network else self.config.hostname

    @property
    def id_mappings(self) -> IdMappings | None:
        """The pod's user namespace; None when it has the host's. Raises InvalidError."""
        return id_mappings(self.namespace_options)

    @property
    def may_have_guest(self) -> bool:
        """Whether a shim may run the pod in a virtual machine."""
        options = self.record.definition.options
        return isinstance(options, ShimOptions) and options.needs_sandbox

    @property
    def guest_cgroups(self) -> tuple[str, ...]:
        """The cgroups that a virtual machine of the pod may have. Raises InvalidError."""
        return guest_cgroups(self.cgroup.parent, self.id) if self.may_have_guest else ()

    @property
    def cgroup(self) -> CgroupPath:
        """The cgroup of the sandbox's own task; its `parent` is the pod's. Raises InvalidError."""
        return self.task_cgroup(self.id)

    def task_cgroup(self, task_id: str) -> CgroupPath:
        """Return the cgroup of a task of the pod. Raises InvalidError."""
        return container_cgroup(self.cgroup_driver, self.config.linux.cgroup_parent, task_id)

    @property
    def cgroup_driver(self) -> CgroupDriver:
        """The driver of the pod's cgroups, chosen when the sandbox was created."""
        return self.record.definition.cgroup_driver or CgroupDriver.CGROUPFS

    def task(self, paths: EnginePaths) -> Task:
        """Return the sandbox's own task: the infra process, for a handler or pod that needs one."""
        return Task(
            id=self.id,
            bundle=paths.bundle(self.id),
            sandbox_id=self.id,
            has_user_namespace=self.id_mappings is not None,
        )

    def spec_context(self, paths: EnginePaths) -> SandboxContext:
        """Return the namespaces and files that the specs of the pod's tasks refer to."""
        directory = paths.namespaces / self.id
        has_network = not self.is_on_host_network
        return SandboxContext(
            id=self.id,
            config=self.config,
            hostname=self.hostname,
            netns=str(directory / pinned.NET) if has_network else "",
            utsns=str(directory / pinned.UTS) if has_network else "",
            userns=str(directory / pinned.USER) if self.id_mappings is not None else "",
            ipcns=str(directory / pinned.IPC) if self.namespace_options.ipc != pb.NODE else "",
            infra_pid=self.record.task_pid or None,
            files=SandboxFiles.of(paths.sandbox_files(self.id), self.config),
        )


class Container:
    """A container: its record, its decoded configuration, its lock, and the event of its exit."""

    def __init__(self, record: ContainerRecord, sandbox: Sandbox) -> None:
        self.record = record
        self.sandbox = sandbox
        self.config = pb.ContainerConfig.FromString(record.config)
        self.lock = asyncio.Lock()
        self.exited = asyncio.Event()
        self.is_stopping = False
        if record.stage is Stage.EXITED:
            self.exited.set()

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def name(self) -> Name:
        return container_name(self.record.sandbox_id, self.config)

    @property
    def is_running(self) -> bool:
        return self.record.stage is Stage.RUNNING

    @property
    def cgroup(self) -> CgroupPath:
        """The container's cgroup. Raises InvalidError."""
        return self.sandbox.task_cgroup(self.id)

    def task(self, paths: EnginePaths) -> Task:
        record, config = self.record, self.config
        return Task(
            id=record.id,
            bundle=paths.bundle(record.id),
            sandbox_id=record.sandbox_id,
            log=Path(record.log_path) if record.log_path else None,
            has_terminal=config.tty,
            has_stdin=config.stdin,
            is_stdin_once=config.stdin_once,
            has_user_namespace=self.sandbox.id_mappings is not None,
        )


Item = TypeVar("Item", Sandbox, Container)


class Index(Generic[Item]):
    """Sandboxes or containers by id and by name."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._by_id: dict[str, Item] = {}
        self._names: dict[Name, str] = {}

    def __iter__(self) -> Iterator[Item]:
        return iter(tuple(self._by_id.values()))

    def get(self, item_id: str) -> Item | None:
        """Return the item with that id or id prefix, None without one.

        Raises InvalidError for a prefix of several ids.
        """
        item = self._by_id.get(item_id)
        if item is not None or not item_id:
            return item
        matches = [full_id for full_id in self._by_id if full_id.startswith(item_id)]
        if len(matches) > 1:
            raise InvalidError(
                f"{len(matches)} {self._kind} ids match prefix {item_id!r}; use a longer one"
            )
        return self._by_id[matches[0]] if matches else None

    def find(self, item_id: str) -> Item:
        """Return the item with that id or id prefix. Raises NotFoundError, InvalidError."""
        item = self.get(item_id)
        if item is None:
            raise NotFoundError(f"{self._kind} {item_id!r} not found")
        return item

    @contextmanager
    def reserved(self, name: Name, item_id: str) -> Iterator[None]:
        """Reserve a name while an item is created; it stays reserved if the item was added.

        Raises PreconditionError when another item has the name.
        """
        owner = self._names.setdefault(name, item_id)
        if owner != item_id:
            joined = "_".join(map(str, name))
            raise PreconditionError(
                f"failed to reserve {self._kind} name {joined!r}: it is reserved for {owner!r}"
            )
        try:
            yield
        finally:
            if item_id not in self._by_id:
                self._names.pop(name, None)

    def has_others(self, item: Item) -> bool:
        """Return whether other items exist or are being created."""
        return any(owner != item.id for owner in self._names.values())

    def add(self, item: Item) -> None:
        self._by_id[item.id] = item
        self._names[item.name] = item.id

    def discard(self, item: Item) -> None:
        self._by_id.pop(item.id, None)
        if self._names.get(item.name) == item.id:
            del self._names[item.name]


class Inventory:
    """The engine's sandboxes and containers, in memory and on disk."""

    def __init__(self, paths: EnginePaths) -> None:
        self.sandboxes: Index[Sandbox] = Index("sandbox")
        self.containers: Index[Container] = Index("container")
        self.incomplete: list[Sandbox] = []
        """Sandboxes whose creation an earlier engine did not finish."""
        self._sandbox_records = RecordDirectory(paths.sandbox_records, SandboxRecord)
        self._container_records = RecordDirectory(paths.container_records, ContainerRecord)
        self._orphans: set[str] = set()

    def load(self) -> None:
        """Read the records of an earlier engine; removes those of containers without a sandbox.

        What belongs to an unreadable record is not loaded, and its ids are in `unreadable`.
        """
        for record in self._sandbox_records.load():
            try:
                sandbox = Sandbox(record)
            except DecodeError as error:
                self._sandbox_records.reject(record.id, error)
                continue
            if record.is_complete:
                self.sandboxes.add(sandbox)
            else:
                self.incomplete.append(sandbox)
        for container in self._container_records.load():
            self._load_container(container)

    def _load_container(self, record: ContainerRecord) -> None:
        parent = self.sandboxes.get(record.sandbox_id)
        if parent is not None:
            try:
                self.containers.add(Container(record, parent))
            except DecodeError as error:
                self._container_records.reject(record.id, error)
        elif record.sandbox_id in self._sandbox_records.unreadable:
            self._orphans.add(record.id)
        else:
            self._container_records.remove(record.id)

    @property
    def unreadable(self) -> frozenset[str]:
        """Ids of sandboxes and containers that may run, but whose records cannot be read.

        A container of such a sandbox is among them. Their directories, mounts and addresses must
        stay.
        """
        return frozenset(
            self._sandbox_records.unreadable | self._container_records.unreadable | self._orphans
        )

    def containers_of(self, sandbox: Sandbox) -> list[Container]:
        return [container for container in self.containers if container.sandbox is sandbox]

    def find_running(self, container_id: str) -> Container:
        """Return a running container. Raises NotFoundError, InvalidError, PreconditionError."""
        container = self.containers.find(container_id)
        if not container.is_running:
            stage = container.record.stage
            raise PreconditionError(f"container {container.id} is not running: it is {stage}")
        return container

    def find_ready(self, sandbox_id: str) -> Sandbox:
        """Return a ready sandbox. Raises NotFoundError, InvalidError, PreconditionError."""
        sandbox = self.sandboxes.find(sandbox_id)
        if not sandbox.record.is_ready:
            raise PreconditionError(f"sandbox {sandbox.id} is not ready")
        return sandbox

    def save_incomplete(self, sandbox: Sandbox) -> None:
        """Record on disk that a sandbox is being created, for recovery after a crash.

        Raises ExhaustedError.
        """
        self._sandbox_records.save(msgspec.structs.replace(sandbox.record, is_complete=False))

    def save_sandbox(self, sandbox: Sandbox, record: SandboxRecord) -> None:
        """Store a sandbox's record, on disk first. Raises ExhaustedError."""
        self._sandbox_records.save(record)
        sandbox.record = record
        self.sandboxes.add(sandbox)
        log.info(
            "sandbox created", pod=sandbox.pod, uid=sandbox.config.metadata.uid,
            sandbox=sandbox.id, handler=record.handler, runtime=record.program,
        )  # fmt: skip

    def save_container(self, container: Container, record: ContainerRecord) -> None:
        """Store a container's record, on disk first. Raises ExhaustedError."""
        self._container_records.save(record)
        # A new container has been given this very record.
        is_changed = record is container.record or record.stage is not container.record.stage
        if is_changed and record.stage is not Stage.STARTING:
            _log_container(f"container {record.stage}", container)
        container.record = record
        self.containers.add(container)

    def update_container(self, container: Container, **fields: object) -> None:
        """Store a container's record with changed fields, on disk first. Raises ExhaustedError."""
        record: ContainerRecord = msgspec.structs.replace(container.record, **fields)
        self.save_container(container, record)

    def save_stopped_sandbox(self, sandbox: Sandbox, record: SandboxRecord) -> None:
        """Store the record of a sandbox that has stopped.

        A full disk is only logged: a new engine finds the sandbox's namespaces gone and stops it.
        """
        try:
            self._sandbox_records.save(record)
        except ExhaustedError as error:
            log.warning("sandbox stop could not be recorded", sandbox=sandbox.id, reason=error)
        sandbox.record = record
        log.info("sandbox stopped", pod=sandbox.pod, sandbox=sandbox.id)

    def save_exited_container(self, container: Container, record: ContainerRecord) -> None:
        """Store the record of a container that has exited; a full disk is only logged."""
        try:
            self._container_records.save(record)
        except ExhaustedError as error:
            log.warning(
                "container exit could not be recorded", container=container.id, reason=error
            )
        container.record = record
        fields: dict[str, object] = {"reason": record.reason}
        if record.exit is not None:
            fields["code"] = record.exit.code
        if record.message:
            fields["message"] = record.message
        _log_container("container exited", container, **fields)

    def delete_sandbox(self, sandbox: Sandbox) -> None:
        self._sandbox_records.remove(sandbox.id)
        self.sandboxes.discard(sandbox)
        log.info("sandbox removed", pod=sandbox.pod, sandbox=sandbox.id)

    def delete_container(self, container: Container) -> None:
        self._container_records.remove(container.id)
        self.containers.discard(container)
        _log_container("container removed", container)


def _log_container(event: str, container: Container, **fields: object) -> None:
    log.info(
        event, pod=container.sandbox.pod, name=container.config.metadata.name,
        container=container.id, **fields,
    )  # fmt: skip


def sandbox_name(config: pb.PodSandboxConfig) -> Name:
    metadata = config.metadata
    return (metadata.name, metadata.namespace, metadata.uid, metadata.attempt)


def container_name(sandbox_id: str, config: pb.ContainerConfig) -> Name:
    return (sandbox_id, config.metadata.name, config.metadata.attempt)
