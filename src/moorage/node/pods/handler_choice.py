"""Choice of a pod's runtime handler, the classes it is made from, and its record on the node.

The handler is chosen once, before the pod's first sandbox is created, and recorded; the record is
authoritative from then on. Without one, a sandbox of the pod decides, then the pod's class. Source:
KEP-585. Decision: docs/decisions/037-handler-of-a-pod.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from moorage.api.clock import parse_time
from moorage.api.errors import NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.api.pods import Pod
from moorage.api.runtime_group import RuntimeClass
from moorage.linux.atomic_file import replace_file
from moorage.node.paths import NodePaths
from moorage.node.pod_facts.sources import format_pod
from moorage.node.runtime.views import PodView
from moorage.runtimeclass import ClassMissing, resolve_handler
from moorage.runtimeclass.validation import DEFAULT_HANDLER, is_implicit
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import RUNTIME_CLASSES
from moorage.wire.client.rest import Client, UnreachableError

# Handler records: the handler each pod of this node was admitted with, in the pod's directory.
#
# A class can be deleted and created again with another handler, and not every engine reports the
# handler of a sandbox (CRI-O leaves `runtime_handler` empty), so neither determines later which
# handler a pod was admitted with. The record is written before the first sandbox is created, and
# survives restarts of sandbox, engine, agent and host.


class HandlerRecord(msgspec.Struct, frozen=True, rename="camel"):
    """The class a pod names and the handler it was admitted with; `""` is the default handler."""

    runtime_class: str
    handler: str


class DamagedRecordError(Exception):
    """A record exists but cannot be parsed."""


class HandlerRecords:
    """The records of this node's pods."""

    def __init__(self, paths: NodePaths) -> None:
        self._paths = paths
        self._known: dict[str, HandlerRecord] = {}

    def known(self, uid: str) -> HandlerRecord | None:
        """Return the record of a pod if it was read or written before; does not block."""
        return self._known.get(uid)

    async def read(self, uid: str) -> HandlerRecord | None:
        """Return the record of a pod, None without one. Raises DamagedRecordError, OSError."""
        if uid not in self._known:
            record = await asyncio.to_thread(_read, self._paths.pod(uid).runtime_handler)
            if record is None:
                return None
            self._known[uid] = record
        return self._known[uid]

    async def write(self, uid: str, record: HandlerRecord) -> None:
        """Write a pod's record. Raises OSError."""
        await asyncio.to_thread(_write, self._paths.pod(uid).runtime_handler, record)
        self._known[uid] = record

    def forget(self, uid: str) -> None:
        """Drop the in-memory record of a removed pod; its file is removed with its volumes."""
        self._known.pop(uid, None)


def _read(file: Path) -> HandlerRecord | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=HandlerRecord)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise DamagedRecordError(f"{file}: {error}") from error


def _write(file: Path, record: HandlerRecord) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, msgspec.json.encode(record))


CLASS_NOT_FOUND = "RuntimeClassNotFound"
CLASS_UNREADABLE = "RuntimeClassUnreadable"
HANDLER_UNKNOWN = "RuntimeHandlerUnknown"


class HandlerError(Exception):
    """The handler of a pod cannot be determined now; `reason` is the status's."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerInputs:
    """What the choice depends on, apart from the class.

    `record` is None when there is none, and when it is damaged. With `is_enabled` false the feature
    gate is off, and pods' class names are ignored.
    """

    pod: Pod
    view: PodView
    record: HandlerRecord | None = None
    is_record_damaged: bool = False
    is_enabled: bool = True


def chosen_handler(inputs: HandlerInputs) -> str | None:
    """Return the handler that is settled without the pod's class, or None."""
    name = inputs.pod.spec.runtime_class_name
    if is_implicit(name):
        return DEFAULT_HANDLER
    if inputs.record is not None and inputs.record.runtime_class == name:
        return inputs.record.handler
    return sandbox_handler(inputs.view)


def needs_class(inputs: HandlerInputs) -> bool:
    """Return whether `choose_handler` needs the pod's class."""
    return chosen_handler(inputs) is None and inputs.is_enabled


def choose_handler(inputs: HandlerInputs, runtime_class: RuntimeClass | None) -> str:
    """Return the handler of a pod's sandboxes; `runtime_class` is None when it does not exist.

    Raises HandlerError when a pod without sandbox names a class that does not exist, and when the
    pod was admitted before and its handler cannot be determined: no other may be chosen for it.
    """
    chosen = chosen_handler(inputs)
    if chosen is not None:
        return chosen
    name = inputs.pod.spec.runtime_class_name or ""
    was_admitted = inputs.is_record_damaged or bool(inputs.view.sandboxes)
    if not inputs.is_enabled:
        if was_admitted:
            raise _unknown(name, "the feature gate RuntimeClass is off")
        return DEFAULT_HANDLER
    if was_admitted:
        # A class's handler is immutable, so a class older than the pod has the handler that the pod
        # was admitted with; a younger one may be a successor with the same name.
        if runtime_class is None:
            raise _unknown(name, "the class does not exist any more")
        if not _is_older(runtime_class, inputs.pod):
            raise _unknown(name, "the class was created after the pod")
    try:
        return resolve_handler(name, lambda _: runtime_class)
    except ClassMissing as error:
        raise HandlerError(CLASS_NOT_FOUND, str(error)) from error


def sandbox_handler(view: PodView) -> str | None:
    """Return the handler of the newest sandbox that has a known one, or None."""
    return next(
        (sandbox.handler for sandbox in view.sandboxes if sandbox.handler is not None), None
    )


def _is_older(runtime_class: RuntimeClass, pod: Pod) -> bool:
    """Return whether the class existed when the pod was created; False for unknown ages."""
    stamps = (runtime_class.metadata.creation_timestamp, pod.metadata.creation_timestamp)
    if not all(stamps):
        return False
    of_class, of_pod = (parse_time(stamp or "") for stamp in stamps)
    return of_class <= of_pod


def _unknown(name: str, why: str) -> HandlerError:
    return HandlerError(
        HANDLER_UNKNOWN,
        f'the handler that RuntimeClass "{name}" named when the pod was admitted is not known '
        f"({why}), and no other may run it: delete the pod, so that it is made again",
    )


# RuntimeClass resolution: the handler of a pod's sandboxes on this node.
#
# The handler is decided once, before the pod's first sandbox is created, and recorded. From then on
# the record is authoritative, whatever becomes of the class, the feature gate, the engine or the
# agent: no sandbox of the pod is ever created under another handler. Classes come from an informer;
# one that it lacks is read from the API, so a newly created class works. Source: KEP-585; kubelet
# `runtimeclass`, which resolves the class again for each sandbox. Decision:
# docs/decisions/037-handler-of-a-pod.md.

log = Log(__name__)


class RuntimeClasses:
    """RuntimeClasses as this node knows them.

    With `is_enabled` false, pods' class names are ignored.
    """

    def __init__(
        self,
        client: Client,
        informer: Informer[RuntimeClass],
        records: HandlerRecords,
        *,
        is_enabled: bool,
    ) -> None:
        self._client = client
        self._informer = informer
        self._records = records
        self._is_enabled = is_enabled

    def on_change(self, handler: Callable[[str], None]) -> None:
        """Call a function with the name of every class that is added, changed or removed."""

        def changed(before: RuntimeClass | None, after: RuntimeClass | None) -> None:
            known = after or before
            if known is not None:
                handler(known.metadata.name)

        self._informer.add_handler(changed)

    def named_by(self, pod: Pod) -> str | None:
        """Return the name of a pod's class; None for the implicit one, or when the gate is off."""
        name = pod.spec.runtime_class_name
        return None if not self._is_enabled or is_implicit(name) else name

    def is_gone(self, pod: Pod) -> bool:
        """Return whether the pod's class is known to be deleted."""
        name = self.named_by(pod)
        return name is not None and self._informer.is_synced and self._informer.get(name) is None

    def replacing_handler(self, pod: Pod, handler: str) -> str | None:
        """Return the handler of the pod's class if it differs from the pod's handler, else None."""
        name = self.named_by(pod)
        runtime_class = self._informer.get(name) if name is not None else None
        return (
            runtime_class.handler
            if runtime_class is not None and runtime_class.handler != handler
            else None
        )

    def known_handler(self, pod: Pod, view: PodView) -> str | None:
        """Return the handler a pod was admitted with, if it is in memory; does not block."""
        if is_implicit(pod.spec.runtime_class_name):
            return DEFAULT_HANDLER
        record = self._records.known(pod.metadata.uid)
        return record.handler if record is not None else sandbox_handler(view)

    def forget(self, uid: str) -> None:
        """Drop the in-memory record of a removed pod."""
        self._records.forget(uid)

    async def handler(self, pod: Pod, view: PodView) -> str:
        """Return the handler of a pod's sandboxes; the first call decides and records it.

        Raises HandlerError when it cannot be determined now; OSError when the record cannot be
        read or written.
        """
        name = pod.spec.runtime_class_name
        if name is None or is_implicit(name):
            return DEFAULT_HANDLER
        uid = pod.metadata.uid
        is_damaged = False
        try:
            record = await self._records.read(uid)
        except DamagedRecordError as error:
            log.warning("handler record not readable", pod=format_pod(pod), error=error)
            record, is_damaged = None, True
        inputs = HandlerInputs(
            pod=pod,
            view=view,
            record=record,
            is_record_damaged=is_damaged,
            is_enabled=self._is_enabled,
        )
        runtime_class = None
        if needs_class(inputs):
            runtime_class = self._informer.get(name) or await self._read(name)
        handler = choose_handler(inputs, runtime_class)
        if record is None or record.runtime_class != name:
            await self._records.write(uid, HandlerRecord(runtime_class=name, handler=handler))
        return handler

    async def _read(self, name: str) -> RuntimeClass | None:
        try:
            return await self._client.get(RUNTIME_CLASSES, name)
        except NotFoundError:
            return None
        except (StatusError, UnreachableError) as error:
            message = f"failed to lookup RuntimeClass {name}: {error}"
            raise HandlerError(CLASS_UNREADABLE, message) from error
