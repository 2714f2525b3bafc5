"""Checks of workloads: what an API server with these facts would refuse, or warn of.

Pod templates are checked as the pods made of them, in custom resources too; quotas, LimitRanges and
webhooks are not there to ask.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

import msgspec

from moorage.runtimeclass.class_choice import ChoiceRefusal, choose_class
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.demands import Path, spelled
from moorage.runtimeclass.exemptions import is_exempt
from moorage.runtimeclass.offer import Offer
from moorage.runtimeclass.placing import is_placeable, place
from moorage.runtimeclass.pod_review import CLASS_PATH, review_name, review_pod
from moorage.runtimeclass.validation import is_implicit
from moorage.runtimeclass.workloads import POD_PATHS, below
from moorage.runtimes.checks.facts import Facts
from moorage.runtimes.checks.manifests import NOT_RENDERED, Manifest
from moorage.runtimes.checks.report import ERROR, WARNING, Result

_MOST_SHOWN = 10
_MOST_COMPARED = 1000
_LONGEST = 253


def check_manifests(
    manifests: Iterable[Manifest], facts: Facts, namespace: str = "default"
) -> list[Result]:
    """Return the results of all workloads; `namespace` is for those that name none."""
    unprobed: set[str] = set()
    return [
        result
        for one in manifests
        for template in templates_of(one.value)
        for result in _check(one, template, facts, namespace, unprobed)
    ]


def is_workload(manifest: Manifest) -> bool:
    """Return whether an object is a pod, or makes pods."""
    return bool(templates_of(manifest.value))


def _check(
    manifest: Manifest, found: Template, facts: Facts, default_namespace: str, unprobed: set[str]
) -> Iterator[Result]:
    """Yield the results of one template. `unprobed` are the handlers that were named already."""
    kind, at = manifest.value.get("kind"), found.path
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

    template = found.value
    if not found.has_containers:
        name = template[CLASS_FIELD]
        if not is_implicit(name) and facts.index.find(name) is None:
            yield result("class-missing", (CLASS_FIELD,), _missing(name, facts.index))
        return
    spec = below(template, ("spec",))
    if spec is None:
        yield result("unreadable", ("spec",), f"{kind} has no pod specification")
        return
    metadata = below(template, ("metadata",)) or {}
    try:
        for objection in _objections(metadata, spec, subject["namespace"], facts, unprobed):
            rule, path, message, level, classes = objection
            yield result(rule, path, message, level=level, classes=classes)
    except (msgspec.ValidationError, ValueError, TypeError, AttributeError) as error:
        yield result("unreadable", ("spec",), f"the specification does not decode: {error}")


_Objection = tuple[str, Path, str, str, tuple[str, ...]]


def _objections(
    metadata: dict[str, Any],
    spec: dict[str, Any],
    namespace: str,
    facts: Facts,
    unprobed: set[str],
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
    if offer is None:
        return
    if facts.knows_nodes and not index.nodes.labelled(offer.selector.items()):
        yield "no-node", CLASS_PATH, _unmatched(offer), WARNING, ()
    elif is_placeable(namespace, metadata, spec):
        placement = place(spec, offer, index)
        if placement.is_held:
            yield "handler-missing", CLASS_PATH, placement.message, WARNING, ()
            return
    if offer.handler not in unprobed and not index.has_features(offer.handler):
        unprobed.add(offer.handler)
        yield "features-unknown", CLASS_PATH, _unprobed(offer), WARNING, ()


def _unprobed(offer: Offer) -> str:
    return (
        f'no probe has looked at handler "{offer.handler}" of RuntimeClass {offer.name} yet: '
        "whether it has what pods ask of it is not checked"
    )


def _unmatched(offer: Offer) -> str:
    labels = ", ".join(f"{key}={value}" for key, value in offer.selector.items())
    return (
        f"no node matches the nodeSelector of RuntimeClass {offer.name}: {labels}; label a node, "
        "or correct the class"
    )


def _missing(name: str, index: ClassIndex) -> str:
    """Return that a class does not exist, and some that do: first those with a similar name."""
    if "{{" in name:
        return f'RuntimeClass "{name[:_LONGEST]}" is {NOT_RENDERED}'
    known = list(index.offers())
    shown = get_close_matches(name, known[:_MOST_COMPARED], _MOST_SHOWN)
    shown += [other for other in known[:_MOST_SHOWN] if other not in shown]
    more = len(known) - len(shown[:_MOST_SHOWN])
    names = ", ".join(shown[:_MOST_SHOWN]) or "none"
    return f'RuntimeClass "{name[:_LONGEST]}" does not exist; those that do: {names}' + (
        f" and {more} more" if more else ""
    )


# Pod templates in objects: at their place in the kinds of Kubernetes, by shape in all others.
#
# Custom resources wrap pods too (Argo, Knative, JobSet, Kubeflow, agent-sandbox, Volcano), each at
# a place of its own. What has a `spec` with a list of containers is a template, and what has a
# `runtimeClassName` without one, as Tekton's and Spark's do, names a class at least.

CLASS_FIELD = "runtimeClassName"
_GROUPS = ("", "apps", "batch", "extensions")
_MOST = 1000
"""Templates of an object that are looked at."""


class Template(msgspec.Struct, frozen=True):
    """A pod, or what pods are made of, at a path of an object.

    `has_containers`: it is a whole template. Otherwise `value` has the name of a class alone.
    """

    path: Path
    value: dict[str, Any]
    has_containers: bool = True


def templates_of(obj: dict[str, Any]) -> list[Template]:
    """Return the templates of an object, one without a specification for a broken workload."""
    kind, version = obj.get("kind"), obj.get("apiVersion")
    group = version.rpartition("/")[0] if isinstance(version, str) else ""
    if isinstance(kind, str) and kind in POD_PATHS and group in _GROUPS:
        at = POD_PATHS[kind]
        return [Template(at, below(obj, at) or {})]
    found = []
    for template in _by_shape(obj):
        found.append(template)
        if len(found) == _MOST:
            break
    return found


def _by_shape(obj: dict[str, Any]) -> Iterator[Template]:
    """Yield templates from the top down; nothing below one is looked at."""
    pending: list[tuple[Path, Any]] = [((), obj)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, list):
            pending += [((*path, index), item) for index, item in reversed([*enumerate(value)])]
        elif isinstance(value, dict):
            if _has_containers(value.get("spec")):
                yield Template(path, value)
                continue
            if isinstance(value.get(CLASS_FIELD), str):
                yield Template(path, value, has_containers=False)
            pending += [((*path, key), item) for key, item in reversed([*value.items()])]


def _has_containers(spec: Any) -> bool:
    containers = spec.get("containers") if isinstance(spec, dict) else None
    return (
        isinstance(containers, list)
        and bool(containers)
        and all(isinstance(one, dict) and ("image" in one or "name" in one) for one in containers)
    )
