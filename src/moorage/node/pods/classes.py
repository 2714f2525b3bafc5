"""From the class a pod names to the handler its sandboxes run under, on this node.

The handler is decided once, when the pod's first sandbox is due, and recorded. From then on the
record counts, whatever becomes of the class, the feature gate, the engine or the agent: no sandbox
of the pod is ever made under another handler. Classes are followed by an informer; one that the
informer lacks is read, so a class made a moment ago works. Source: KEP-585; kubelet
`runtimeclass`, which resolves the class again for each sandbox. Decision:
docs/decisions/037-handler-of-a-pod.md.
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.api.clock import parse_time
from moorage.api.errors import NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.api.pods import Pod
from moorage.api.runtime_classes import RuntimeClass
from moorage.client import Client, Informer
from moorage.client.resources import RUNTIME_CLASSES
from moorage.client.rest import UnreachableError
from moorage.node.pods.handler_records import DamagedRecordError, HandlerRecord, HandlerRecords
from moorage.node.pods.spec import described
from moorage.node.runtime.views import PodView
from moorage.runtimeclass import resolve_handler
from moorage.runtimeclass.handler import DEFAULT_HANDLER, is_implicit

log = Log(__name__)


class ClassUnreadableError(Exception):
    """The class may exist, but the API server did not say; worth another try."""


class HandlerUnknownError(Exception):
    """Nothing says which handler the pod was admitted with, so none may be chosen for it."""


class RuntimeClasses:
    """The classes as this node knows them. `is_enabled` false ignores what pods name."""

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
        """Hear the name of every class that appears, changes or goes."""

        def changed(before: RuntimeClass | None, after: RuntimeClass | None) -> None:
            known = after or before
            if known is not None:
                handler(known.metadata.name)

        self._informer.add_handler(changed)

    def named_by(self, pod: Pod) -> str | None:
        """The class whose rules hold for a pod, None for the implicit one."""
        name = pod.spec.runtime_class_name
        return None if not self._is_enabled or is_implicit(name) else name

    def is_gone(self, pod: Pod) -> bool:
        """Whether the pod's class is known not to exist any more."""
        name = self.named_by(pod)
        return name is not None and self._informer.is_synced and self._informer.get(name) is None

    def replacing_handler(self, pod: Pod, handler: str) -> str | None:
        """The handler of the pod's class when it is another than the pod's, else None."""
        name = self.named_by(pod)
        found = self._informer.get(name) if name is not None else None
        return found.handler if found is not None and found.handler != handler else None

    def known_handler(self, pod: Pod, view: PodView) -> str | None:
        """The handler a pod was admitted with as far as it is in memory; does not block."""
        if is_implicit(pod.spec.runtime_class_name):
            return DEFAULT_HANDLER
        record = self._records.known(pod.metadata.uid)
        return record.handler if record is not None else _of_sandboxes(view)

    def forget(self, uid: str) -> None:
        """Drop what is in memory of a pod that is gone."""
        self._records.forget(uid)

    async def handler(self, pod: Pod, view: PodView) -> str:
        """Return the handler of a pod's sandboxes, deciding and recording it at the first call.

        Raises ClassMissing for a pod without sandbox whose class does not exist;
        ClassUnreadableError; HandlerUnknownError when the pod was admitted before and nothing
        says under which handler; OSError when the record cannot be written.
        """
        name = pod.spec.runtime_class_name
        if name is None or is_implicit(name):
            return DEFAULT_HANDLER
        uid = pod.metadata.uid
        is_damaged = False
        try:
            record = await self._records.read(uid)
        except DamagedRecordError as error:
            log.warning("handler record not readable", pod=described(pod), error=error)
            record, is_damaged = None, True
        if record is None or record.runtime_class != name:
            handler = await self._decide(pod, name, view, is_damaged=is_damaged)
            record = HandlerRecord(runtime_class=name, handler=handler)
            await self._records.write(uid, record)
        return record.handler

    async def _decide(self, pod: Pod, name: str, view: PodView, *, is_damaged: bool) -> str:
        """The handler of a pod without record: its sandboxes', else its class's."""
        of_sandboxes = _of_sandboxes(view)
        if of_sandboxes is not None:
            return of_sandboxes
        was_admitted = is_damaged or bool(view.sandboxes)
        if not self._is_enabled:
            if was_admitted:
                raise HandlerUnknownError(_unknown(name, "the feature gate RuntimeClass is off"))
            return DEFAULT_HANDLER
        found = self._informer.get(name) or await self._read(name)
        if was_admitted:
            # A class never changes its handler, so one that was there before the pod is the one
            # that the pod was admitted with; any other may be a successor of the same name.
            if found is None:
                raise HandlerUnknownError(_unknown(name, "the class does not exist any more"))
            if not _is_older(found, pod):
                raise HandlerUnknownError(_unknown(name, "the class was created after the pod"))
        return resolve_handler(name, lambda _: found)

    async def _read(self, name: str) -> RuntimeClass | None:
        try:
            return await self._client.get(RUNTIME_CLASSES, name)
        except NotFoundError:
            return None
        except (StatusError, UnreachableError) as error:
            raise ClassUnreadableError(f"failed to lookup RuntimeClass {name}: {error}") from error


def _of_sandboxes(view: PodView) -> str | None:
    """The handler of the newest sandbox that has a known one."""
    return next((each.handler for each in view.sandboxes if each.handler is not None), None)


def _is_older(runtime_class: RuntimeClass, pod: Pod) -> bool:
    """Whether the class was there when the pod was made; unknown ages count as no."""
    stamps = (runtime_class.metadata.creation_timestamp, pod.metadata.creation_timestamp)
    if not all(stamps):
        return False
    of_class, of_pod = (parse_time(each or "") for each in stamps)
    return of_class <= of_pod


def _unknown(name: str, why: str) -> str:
    return (
        f'the handler that RuntimeClass "{name}" named when the pod was admitted is not known '
        f"({why}), and no other may run it: delete the pod, so that it is made again"
    )
