"""Class versions: classes of one handler that differ in what they declare.

A new overhead becomes a new class NAME-vN, which workloads are moved to as any other class: a pod's
overhead never changes while it runs, and a larger one may leave no room for the pods of the next
rollout, so it has to be possible to go back. Versions refer to their origin by annotation. Pure.
Source: KEP-688, API docs "Runtime Class" (the handler is immutable).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy

from moorage.api.meta import ObjectMeta, Raw
from moorage.api.quantity import parse
from moorage.api.runtime_group import (
    MEASURED_AT_ANNOTATION,
    MEASURED_OVERHEAD_ANNOTATION,
    PREVIOUS_OVERHEAD_ANNOTATION,
    VERSION_OF_ANNOTATION,
)

_LONGEST_NAME = 253


class VersionError(ValueError):
    """A class can have no further version; the text says why."""


def origin_of(meta: ObjectMeta) -> str:
    """Return the class of which one is a version: itself, unless its annotation names another."""
    origin = meta.annotations.get(VERSION_OF_ANNOTATION, "")
    return origin if _number(origin, meta) else meta.name


def version_of(meta: ObjectMeta) -> int:
    """Return the number of a class's version; 1 for one that is no version of another."""
    return _number(meta.annotations.get(VERSION_OF_ANNOTATION, ""), meta) or 1


def _number(origin: str, meta: ObjectMeta) -> int:
    """Return N of a class NAME-vN whose annotation is NAME, else 0."""
    digits = meta.name.removeprefix(f"{origin}-v")
    is_version = bool(origin) and digits != meta.name and digits.isdecimal() and digits.isascii()
    number = int(digits) if is_version and len(digits) <= 9 else 0
    return number if number >= 2 and str(number) == digits else 0


def newest_version(origin: str, classes: Iterable[ObjectMeta]) -> str:
    """Return the name of the newest version of a class; the class itself if it has no other."""
    versions = [meta for meta in classes if origin_of(meta) == origin]
    newest = max(versions, key=version_of, default=None)
    return origin if newest is None else newest.name


def has_overhead(runtime_class: Raw, pod_fixed: Mapping[str, str]) -> bool:
    """Return whether a class declares these amounts, in whatever spelling."""
    declared = (runtime_class.get("overhead") or {}).get("podFixed") or {}
    return {name: parse(text) for name, text in declared.items()} == {
        name: parse(text) for name, text in pod_fixed.items()
    }


def next_version(
    newest: Raw, taken: Iterable[str], pod_fixed: Mapping[str, str], evidence: Mapping[str, str]
) -> Raw:
    """Return the class that follows the newest version of a class, with another overhead.

    `taken` are the names of all classes. Handler, scheduling and labels stay, but for those of our
    controllers, which manage the classes that they created alone. Raises VersionError when the name
    would be too long.
    """
    meta = ObjectMeta(
        name=newest["metadata"]["name"],
        annotations=newest["metadata"].get("annotations") or {},
    )
    origin, number, names = origin_of(meta), version_of(meta) + 1, set(taken)
    while (name := f"{origin}-v{number}") in names:
        number += 1
    if len(name) > _LONGEST_NAME:
        raise VersionError(f"class {origin} can have no version: {name} is too long for a name")
    labels = {
        key: value
        for key, value in (newest["metadata"].get("labels") or {}).items()
        if not key.endswith("/managed")
    }
    version: Raw = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {
            "name": name,
            "annotations": {VERSION_OF_ANNOTATION: origin, **evidence},
            **({"labels": labels} if labels else {}),
        },
        "handler": newest["handler"],
        "overhead": {"podFixed": dict(pod_fixed)},
    }
    if newest.get("scheduling") is not None:
        version["scheduling"] = deepcopy(newest["scheduling"])
    return version


def in_place_patch(
    runtime_class: Raw, pod_fixed: Mapping[str, str], evidence: Mapping[str, str], previous: str
) -> Raw:
    """Return the merge patch that changes a class's overhead, and keeps the previous one.

    `previous` is the previous overhead as JSON text. The class must not have changed meanwhile.
    """
    declared = (runtime_class.get("overhead") or {}).get("podFixed") or {}
    removed: dict[str, str | None] = {name: None for name in declared if name not in pod_fixed}
    return {
        "metadata": {
            "resourceVersion": runtime_class["metadata"]["resourceVersion"],
            "annotations": {**evidence, PREVIOUS_OVERHEAD_ANNOTATION: previous},
        },
        "overhead": {"podFixed": {**removed, **pod_fixed}},
    }


def evidence_annotations(summary: str, measured_at: str) -> dict[str, str]:
    """Return the annotations that say where a class's overhead comes from."""
    return {MEASURED_OVERHEAD_ANNOTATION: summary, MEASURED_AT_ANNOTATION: measured_at}
