"""Pod admission for a class: sets overhead, merges node selector and tolerations.

Two steps, as in the API server: `admit` changes the pod's fields before other mutators run,
`check_admitted` validates the overhead after them. Hot path: under 5 µs per pod
(bench/hotpaths.py). Source: KEP-585, KEP-688; messages as Kubernetes 1.36 words them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from moorage.api.nodes import NO_EXECUTE
from moorage.api.pods import Toleration
from moorage.api.quantity import parse
from moorage.api.runtime_group import RuntimeClass


class AdmissionRefusal(Exception):  # noqa: N818 - the field's word
    """The class and the pod conflict; the text describes how."""


class PodFields(msgspec.Struct, frozen=True):
    """The fields of a pod that its class may set. None means absent, which differs from empty."""

    overhead: Mapping[str, str] | None = None
    node_selector: Mapping[str, str] | None = None
    tolerations: tuple[Toleration, ...] | None = None


def admit(pod: PodFields, runtime_class: RuntimeClass) -> PodFields:
    """Return the pod's fields merged with the class's overhead and scheduling rules.

    Raises AdmissionRefusal when the pod has another overhead or a conflicting selector.
    """
    admitted = pod
    if runtime_class.overhead is not None:
        admitted = replace(admitted, overhead=_merged_overhead(pod, runtime_class))
    scheduling = runtime_class.scheduling
    if scheduling is not None:
        admitted = replace(
            admitted,
            node_selector=_merged_selector(pod.node_selector, scheduling.node_selector),
            tolerations=tuple(merge_tolerations(pod.tolerations or (), scheduling.tolerations))
            or None,
        )
    return admitted


def check_admitted(overhead: Mapping[str, str] | None, runtime_class: RuntimeClass | None) -> None:
    """Raise AdmissionRefusal if the overhead is not the class's, or the class defines none."""
    if runtime_class is not None and runtime_class.overhead is not None:
        if not is_same_overhead(overhead or {}, runtime_class.overhead.pod_fixed):
            raise AdmissionRefusal(
                "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
            )
    elif overhead is not None:
        raise AdmissionRefusal(
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        )


def is_same_overhead(left: Mapping[str, str], right: Mapping[str, str]) -> bool:
    """Return whether two resource lists are equal by amount, ignoring the text form."""
    if left == right:
        return True
    return left.keys() == right.keys() and all(
        parse(amount) == parse(right[name]) for name, amount in left.items()
    )


def _merged_overhead(pod: PodFields, runtime_class: RuntimeClass) -> Mapping[str, str] | None:
    assert runtime_class.overhead is not None
    fixed = runtime_class.overhead.pod_fixed
    if pod.overhead and not is_same_overhead(pod.overhead, fixed):
        raise AdmissionRefusal(
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        )
    return dict(fixed) or None


def _merged_selector(
    pod: Mapping[str, str] | None, runtime_class: Mapping[str, str]
) -> Mapping[str, str] | None:
    merged = dict(pod or {})
    for key, value in runtime_class.items():
        present = merged.setdefault(key, value)
        if present != value:
            raise AdmissionRefusal(
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {present}"
            )
    return merged or None


# Toleration merging: a pod's and its class's, without duplicates or covered ones.
#
# Source: KEP-585 "Scheduling"; the rules of coverage are in docs/runtimeclass.md. Among tolerations
# that cover each other the first one is kept.


def merge_tolerations(
    pod: Sequence[Toleration], runtime_class: Sequence[Toleration]
) -> list[Toleration]:
    """Return the pod's tolerations, then the class's, without those that another covers."""
    merged: list[Toleration] = []
    everything = [*pod, *runtime_class]
    for index, candidate in enumerate(everything):
        if any(covers(kept, candidate) for kept in merged):
            continue
        later = everything[index + 1 :]
        if any(other != candidate and covers(other, candidate) for other in later):
            continue
        merged.append(candidate)
    return merged


def covers(wide: Toleration, narrow: Toleration) -> bool:
    """Return whether `wide` tolerates each taint that `narrow` does, at least as long."""
    if wide == narrow:
        return True
    return (
        _covers_key(wide, narrow)
        and (not wide.effect or wide.effect == narrow.effect)
        and _covers_seconds(wide, narrow)
        and _covers_value(wide, narrow)
    )


def _covers_key(wide: Toleration, narrow: Toleration) -> bool:
    return wide.key == narrow.key or (not wide.key and wide.operator == "Exists")


def _covers_seconds(wide: Toleration, narrow: Toleration) -> bool:
    if wide.effect != NO_EXECUTE or wide.toleration_seconds is None:
        return True
    return (
        narrow.toleration_seconds is not None
        and narrow.toleration_seconds <= wide.toleration_seconds
    )


def _covers_value(wide: Toleration, narrow: Toleration) -> bool:
    if wide.operator == "Exists":
        return True
    if wide.operator not in ("", "Equal"):
        return False
    # An omitted operator on the narrow side is not read as Equal here: it must be explicit.
    return narrow.operator == "Equal" and narrow.value == wide.value
