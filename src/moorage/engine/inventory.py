"""The sandboxes and containers there are: found by id, each name held by one of them.

An id may be shortened as long as it means one thing. A sandbox's name is (name, namespace, uid,
attempt), a container's is (its sandbox, name, attempt); both are held from the first step of
making until the end of removal. Source: CRI, the comments on the two Metadata messages.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from moorage.api.logs import Log
from moorage.cri import pb
from moorage.engine.errors import (
    ExhaustedError,
    InvalidError,
    NotFoundError,
    PreconditionError,
)
from moorage.engine.paths import EnginePaths
from moorage.engine.records import ContainerRecord, RecordDirectory, SandboxRecord, Stage
from moorage.handlers.adapters import Task

log = Log(__name__)

Name = tuple[str | int, ...]


def new_id() -> str:
    """64 hex digits, as every engine's ids are."""
    return secrets.token_hex(32)


class Sandbox:
    """A sandbox: its record, the configuration in it, and the lock that orders what is done."""

    def __init__(self, record: SandboxRecord) -> None:
        self.record = record
        self.config = pb.PodSandboxConfig.FromString(record.config)
        self.lock = asyncio.Lock()

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def name(self) -> Name:
        return sandbox_name(self.config)

    @property
    def namespace_options(self) -> pb.NamespaceOption:
        return self.config.linux.security_context.namespace_options

    def task(self, paths: EnginePaths) -> Task:
        """The sandbox's own task, for a handler that needs one."""
        return Task(id=self.id, bundle=paths.bundle(self.id), sandbox_id=self.id)


class Container:
    """A container: its record, the configuration in it, its lock, and the event of its end."""

    def __init__(self, record: ContainerRecord, sandbox: Sandbox) -> None:
        self.record = record
        self.sandbox = sandbox
        self.config = pb.ContainerConfig.FromString(record.config)
        self.lock = asyncio.Lock()
        self.ended = asyncio.Event()
        self.is_stopping = False
        if record.stage is Stage.EXITED:
            self.ended.set()

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def name(self) -> Name:
        return container_name(self.record.sandbox_id, self.config)

    @property
    def is_running(self) -> bool:
        return self.record.stage is Stage.RUNNING

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
        )


Thing = TypeVar("Thing", Sandbox, Container)


class _Shelf(Generic[Thing]):
    """Things of one kind by id and by name."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._by_id: dict[str, Thing] = {}
        self._names: dict[Name, str] = {}

    def __iter__(self) -> Iterator[Thing]:
        return iter(tuple(self._by_id.values()))

    def get(self, given: str) -> Thing | None:
        """The one with that id, whole or shortened. Raises InvalidError when several have it."""
        found = self._by_id.get(given)
        if found is not None or not given:
            return found
        alike = [each for each in self._by_id if each.startswith(given)]
        if len(alike) > 1:
            raise InvalidError(f"{len(alike)} {self._kind} ids begin with {given!r}; give more")
        return self._by_id[alike[0]] if alike else None

    def find(self, given: str) -> Thing:
        """The one with that id. Raises NotFoundError."""
        found = self.get(given)
        if found is None:
            raise NotFoundError(f"{self._kind} {given!r} not found")
        return found

    @contextmanager
    def reserved(self, name: Name, thing_id: str) -> Iterator[None]:
        """Hold a name while something is made; it stays held if that was put on the shelf.

        Raises PreconditionError when another has the name.
        """
        holder = self._names.setdefault(name, thing_id)
        if holder != thing_id:
            spoken = "_".join(map(str, name))
            raise PreconditionError(
                f"failed to reserve {self._kind} name {spoken!r}: it is reserved for {holder!r}"
            )
        try:
            yield
        finally:
            if thing_id not in self._by_id:
                self._names.pop(name, None)

    def has_others(self, thing: Thing) -> bool:
        """Whether there are others of the kind, or some are being made."""
        return any(holder != thing.id for holder in self._names.values())

    def put(self, thing: Thing) -> None:
        self._by_id[thing.id] = thing
        self._names[thing.name] = thing.id

    def drop(self, thing: Thing) -> None:
        self._by_id.pop(thing.id, None)
        if self._names.get(thing.name) == thing.id:
            del self._names[thing.name]


class Inventory:
    """Everything the engine has, in memory and on disk."""

    def __init__(self, paths: EnginePaths) -> None:
        self.sandboxes: _Shelf[Sandbox] = _Shelf("sandbox")
        self.containers: _Shelf[Container] = _Shelf("container")
        self.half_made: list[Sandbox] = []
        """Sandboxes that an earlier engine did not finish."""
        self._sandbox_records = RecordDirectory(paths.sandbox_records, SandboxRecord)
        self._container_records = RecordDirectory(paths.container_records, ContainerRecord)

    def load(self) -> None:
        """Read the records of an earlier engine. A container without its sandbox is forgotten."""
        for record in self._sandbox_records.load():
            sandbox = Sandbox(record)
            if record.is_made:
                self.sandboxes.put(sandbox)
            else:
                self.half_made.append(sandbox)
        for container in self._container_records.load():
            above = self.sandboxes.get(container.sandbox_id)
            if above is None:
                self._container_records.remove(container.id)
            else:
                self.containers.put(Container(container, above))

    def containers_of(self, sandbox: Sandbox) -> list[Container]:
        return [each for each in self.containers if each.sandbox is sandbox]

    def note_making(self, sandbox: Sandbox) -> None:
        """Put on disk that a sandbox is being made, for whoever finds it half done.

        Raises ExhaustedError.
        """
        self._sandbox_records.save(msgspec.structs.replace(sandbox.record, is_made=False))

    def save_sandbox(self, sandbox: Sandbox, record: SandboxRecord) -> None:
        """Keep what became of a sandbox, on disk first. Raises ExhaustedError."""
        self._sandbox_records.save(record)
        sandbox.record = record
        self.sandboxes.put(sandbox)

    def save_container(self, container: Container, record: ContainerRecord) -> None:
        """Keep what became of a container, on disk first. Raises ExhaustedError."""
        self._container_records.save(record)
        container.record = record
        self.containers.put(container)

    def note_sandbox_end(self, sandbox: Sandbox, record: SandboxRecord) -> None:
        """Keep that a sandbox ended. A full disk does not hinder that: what is on it stays true
        for a new engine, which finds the end by itself.
        """
        try:
            self._sandbox_records.save(record)
        except ExhaustedError as error:
            log.warning("an end is not on disk", sandbox=sandbox.id, reason=error)
        sandbox.record = record

    def note_container_end(self, container: Container, record: ContainerRecord) -> None:
        """Keep that a container ended, as `note_sandbox_end` does."""
        try:
            self._container_records.save(record)
        except ExhaustedError as error:
            log.warning("an end is not on disk", container=container.id, reason=error)
        container.record = record

    def forget_sandbox(self, sandbox: Sandbox) -> None:
        self._sandbox_records.remove(sandbox.id)
        self.sandboxes.drop(sandbox)

    def forget_container(self, container: Container) -> None:
        self._container_records.remove(container.id)
        self.containers.drop(container)


def sandbox_name(config: pb.PodSandboxConfig) -> Name:
    metadata = config.metadata
    return (metadata.name, metadata.namespace, metadata.uid, metadata.attempt)


def container_name(sandbox_id: str, config: pb.ContainerConfig) -> Name:
    return (sandbox_id, config.metadata.name, config.metadata.attempt)
