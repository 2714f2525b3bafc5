"""Choice of a pod's runtime handler, pure.

The handler is chosen once, before the pod's first sandbox is created, and recorded; the record is
authoritative from then on. Without one, a sandbox of the pod decides, then the pod's class. Source:
KEP-585. Decision: docs/decisions/037-handler-of-a-pod.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from moorage.api.clock import parse_time
from moorage.api.pods import Pod
from moorage.api.runtime_classes import RuntimeClass
from moorage.node.pods.handler_records import HandlerRecord
from moorage.node.runtime.views import PodView
from moorage.runtimeclass import ClassMissing, resolve_handler
from moorage.runtimeclass.handler import DEFAULT_HANDLER, is_implicit

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
