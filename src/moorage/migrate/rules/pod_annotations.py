"""Pod annotations of engines from before RuntimeClass, as `runtimeClassName`.

containerd, CRI-O, frakti and dockershim each chose a pod's runtime by an annotation. Sources:
containerd's CRI plugin ("untrusted workload"), CRI-O 1.10 `default_workload_trust`, frakti's
"runtime" annotations, dockershim's "Hyper-V isolation".
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

from moorage.migrate.rules.changes import Insert, Operation, Remove, at, below
from moorage.migrate.rules.findings import Outcome, Severity, note, refused
from moorage.migrate.rules.pod_templates import template_path


class Meaning(enum.StrEnum):
    """What an annotation asked for; a class is chosen for each."""

    UNTRUSTED = "untrusted"
    OS_CONTAINER = "os-container"
    UNIKERNEL = "unikernel"
    HYPERV = "hyperv"


class _Annotation(msgspec.Struct, frozen=True):
    """Values that ask for something, and those that ask for the engine's default runtime."""

    asks: Mapping[str, Meaning]
    defaults: tuple[str, ...]
    refuses_host_namespaces: bool = False


ANNOTATIONS: dict[str, _Annotation] = {
    "io.kubernetes.cri.untrusted-workload": _Annotation(
        {"true": Meaning.UNTRUSTED}, ("false",), refuses_host_namespaces=True
    ),
    "io.kubernetes.cri-o.TrustedSandbox": _Annotation({"false": Meaning.UNTRUSTED}, ("true",)),
    "runtime.frakti.alpha.kubernetes.io/OSContainer": _Annotation(
        {"true": Meaning.OS_CONTAINER}, ("false",)
    ),
    "runtime.frakti.alpha.kubernetes.io/Unikernel": _Annotation(
        {"true": Meaning.UNIKERNEL}, ("false",)
    ),
    "experimental.windows.kubernetes.io/isolation-type": _Annotation(
        {"hyperv": Meaning.HYPERV}, ("process",)
    ),
}
"""Annotations that a class has replaced."""

DEFAULT_CLASSES: dict[Meaning, tuple[str, str]] = {
    Meaning.UNTRUSTED: ("untrusted", "untrusted"),
    Meaning.OS_CONTAINER: ("native", "runc"),
    Meaning.UNIKERNEL: ("unikernel", "unikernel"),
    Meaning.HYPERV: ("hyperv", "runhcs-wcow-hypervisor"),
}
"""Name and handler of the class of each meaning. containerd's table is `runtimes.untrusted`."""

_HOST_NAMESPACES = ("hostNetwork", "hostPID", "hostIPC")


class TemplateOutcome(msgspec.Struct, frozen=True):
    """The class that a pod template's annotations mean; `meaning` is None without one."""

    outcome: Outcome
    meaning: Meaning | None = None


def migrate_annotations(
    document: dict[str, Any], class_names: Mapping[Meaning, str]
) -> TemplateOutcome:
    """Return the operations that replace the annotations of an object's pod template by a class.

    `class_names` are the classes for the meanings. An object whose annotations contradict each
    other, or its class, is refused.
    """
    path = template_path(document)
    if path is None:
        return TemplateOutcome(Outcome())
    template = at(document, path)
    metadata = template.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(annotations, dict):
        return TemplateOutcome(Outcome())
    own = {key: value for key, value in annotations.items() if key in ANNOTATIONS}
    if not own:
        return TemplateOutcome(Outcome())
    notes: list[tuple[Severity, str]] = []
    removed: list[str] = []
    meanings: dict[Meaning, str] = {}
    for key, value in own.items():
        annotation = ANNOTATIONS[key]
        if not isinstance(value, str):
            notes.append(refused(f"annotation {key} is not a text; quote its value"))
        elif value in annotation.asks:
            meanings[annotation.asks[value]] = key
            removed.append(key)
        elif value in annotation.defaults:
            removed.append(key)
        else:
            notes.append(
                refused(f"annotation {key} has the value {value[:80]!r}, which no engine knew")
            )
    if len(meanings) > 1:
        keys = " and ".join(meanings.values())
        return TemplateOutcome(
            Outcome(notes=[*notes, refused(f"annotations {keys} contradict each other; keep one")])
        )
    spec = template["spec"]
    operations: list[Operation] = []
    meaning = next(iter(meanings), None)
    if meaning is not None:
        class_name = class_names[meaning]
        present = spec.get("runtimeClassName")
        if present and present != class_name:
            return TemplateOutcome(
                Outcome(
                    notes=[
                        *notes,
                        refused(
                            f"annotation {meanings[meaning]} means class {class_name!r}, but "
                            f"runtimeClassName is {str(present)[:80]!r}; keep one"
                        ),
                    ]
                )
            )
        if not present:
            if "runtimeClassName" in spec:
                operations.append(Remove(("spec",), ("runtimeClassName",)))
            operations.append(Insert(("spec",), "runtimeClassName", class_name))
        host = [field for field in _HOST_NAMESPACES if spec.get(field) is True]
        if host and ANNOTATIONS[meanings[meaning]].refuses_host_namespaces:
            notes.append(
                note(
                    f"it has {', '.join(host)}, which containerd refused with its annotation and "
                    "most sandboxes cannot give"
                )
            )
    operations += _removals(removed, annotations, metadata)
    return TemplateOutcome(Outcome(below(path, operations), notes=notes), meaning)


def _removals(
    removed: list[str], annotations: dict[str, Any], metadata: dict[str, Any]
) -> list[Operation]:
    if not removed:
        return []
    if len(removed) < len(annotations):
        return [Remove(("metadata", "annotations"), tuple(removed))]
    if len(metadata) > 1:
        return [Remove(("metadata",), ("annotations",))]
    return [Remove((), ("metadata",))]
