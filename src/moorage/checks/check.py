"""Checks of workloads: what an API server with these facts would refuse, or warn of.

Pod templates are checked as the pods made of them; quotas, LimitRanges and webhooks are not there
to ask.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

import msgspec

from moorage.checks.facts import Facts
from moorage.checks.manifests import Manifest
from moorage.checks.results import ERROR, WARNING, Result
from moorage.runtimeclass.class_choice import ChoiceRefusal, choose_class
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.demands import Path, spelled
from moorage.runtimeclass.exemptions import is_exempt
from moorage.runtimeclass.handler import is_implicit
from moorage.runtimeclass.placing import is_placeable, place
from moorage.runtimeclass.pod_review import CLASS_PATH, review_name, review_pod
from moorage.runtimeclass.workloads import POD_PATHS, below

_MOST_SHOWN = 10
_MOST_COMPARED = 1000
_LONGEST = 253


def check_manifests(
    manifests: Iterable[Manifest], facts: Facts, namespace: str = "default"
) -> list[Result]:
    """Return the results of all workloads; `namespace` is for those that name none."""
    return [result for one in manifests for result in _check(one, facts, namespace)]


def is_workload(manifest: Manifest) -> bool:
    """Return whether an object is a pod, or makes pods."""
    kind = manifest.value.get("kind")
    return isinstance(kind, str) and kind in POD_PATHS


def _check(manifest: Manifest, facts: Facts, default_namespace: str) -> Iterator[Result]:
    kind = manifest.value.get("kind")
    if not isinstance(kind, str) or kind not in POD_PATHS:
        return
    at = POD_PATHS[kind]
    meta = below(manifest.value, ("metadata",)) or {}
    subject: dict[str, Any] = {
        "file": manifest.file,
        "kind": str(kind),
        "namespace": str(meta.get("namespace") or default_namespace),
        "name": str(meta.get("name") or meta.get("generateName") or ""),
    }

    def result(rule: str, path: Path, message: str, **more: Any) -> Result:
        whole = (*at, *path)
        return Result(
            **subject,
            line=manifest.line(whole),
            rule=rule,
            field=spelled(whole),
            message=message,
            **{"level": ERROR, **more},
        )

    template = below(manifest.value, at) or {}
    spec = below(template, ("spec",))
    if spec is None:
        yield result("unreadable", ("spec",), f"{kind} has no pod specification")
        return
    metadata = below(template, ("metadata",)) or {}
    try:
        for objection in _objections(metadata, spec, subject["namespace"], facts):
            rule, path, message, level, classes = objection
            yield result(rule, path, message, level=level, classes=classes)
    except (msgspec.ValidationError, ValueError, TypeError, AttributeError) as error:
        yield result("unreadable", ("spec",), f"the specification does not decode: {error}")


_Objection = tuple[str, Path, str, str, tuple[str, ...]]


def _objections(
    metadata: dict[str, Any], spec: dict[str, Any], namespace: str, facts: Facts
) -> Iterator[_Objection]:
    if closed := review_name(namespace, spec):
        yield closed.rule, closed.path, closed.message, ERROR, ()
        return
    if is_exempt(namespace, metadata, spec):
        return
    policy, index = facts.policy(namespace), facts.index
    try:
        choice = choose_class(metadata, spec, facts.annotations(namespace), policy, index)
    except ChoiceRefusal as refusal:
        yield "class-choice", CLASS_PATH, str(refusal), ERROR, ()
        return
    for warning in choice.warnings:
        yield "class-choice", CLASS_PATH, warning, WARNING, ()
    if choice.class_name is not None:
        spec = {**spec, "runtimeClassName": choice.class_name}
    name = spec.get("runtimeClassName")
    offer = None if is_implicit(name) else index.find(str(name))
    if not is_implicit(name) and offer is None:
        yield "class-missing", CLASS_PATH, _missing(str(name), index), ERROR, ()
        return
    for one in review_pod(metadata, spec, policy, index):
        message = one.message if one.finding is None else one.finding.message
        yield one.rule, one.path, message, ERROR if one.refuses else WARNING, one.classes
    if offer is not None and is_placeable(namespace, metadata, spec):
        placement = place(spec, offer, index)
        if placement.is_held:
            yield "handler-missing", CLASS_PATH, placement.message, WARNING, ()


def _missing(name: str, index: ClassIndex) -> str:
    """Return that a class does not exist, and some that do: first those with a similar name."""
    known = list(index.offers())
    shown = get_close_matches(name, known[:_MOST_COMPARED], _MOST_SHOWN)
    shown += [other for other in known[:_MOST_SHOWN] if other not in shown]
    more = len(known) - len(shown[:_MOST_SHOWN])
    names = ", ".join(shown[:_MOST_SHOWN]) or "none"
    return f'RuntimeClass "{name[:_LONGEST]}" does not exist; those that do: {names}' + (
        f" and {more} more" if more else ""
    )
