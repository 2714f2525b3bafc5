"""Objects of a live cluster: what migration changes in each, as a merge patch.

The transformations are those of files. Classes that a server stores are v1 already, whatever
version they were created in, so only workloads and policies change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from moorage.migrate.rules import alpha_classes, gatekeeper, kyverno, pod_security_policies
from moorage.migrate.rules.changes import Operation, Severity, applied, note
from moorage.migrate.rules.handler_files import class_object, table, text
from moorage.migrate.rules.plan import Options
from moorage.migrate.rules.pod_security_policies import (
    DEFAULT_CLASSES,
    Meaning,
    migrate_annotations,
)
from moorage.migrate.rules.policies import isolation_of, valid_only

_POLICY_KINDS = ("RuntimePolicy", "ClusterRuntimePolicy")


class LiveOutcome(msgspec.Struct, frozen=True):
    """What becomes of a live object; `meaning` is what its annotations asked for."""

    operations: Sequence[Operation] = ()
    objects: Sequence[dict[str, Any]] = ()
    notes: Sequence[tuple[Severity, str]] = ()
    meaning: Meaning | None = None


class LiveFacts(msgspec.Struct, frozen=True):
    """What all objects of a cluster say together. `classes` are the names of its RuntimeClasses."""

    options: Options
    classes: tuple[str, ...]
    policies: tuple[dict[str, Any], ...]
    present: frozenset[tuple[str, str, str]]
    bindings: pod_security_policies.Bindings
    templates: Mapping[str, str]

    @classmethod
    def of(cls, objects: Sequence[dict[str, Any]], options: Options) -> LiveFacts:
        """Return the facts of classes, policies, roles and bindings."""
        return cls(
            options=options,
            classes=tuple(sorted(_name(item) for item in objects if alpha_classes.is_class(item))),
            policies=tuple(
                item
                for item in objects
                if pod_security_policies.is_policy(item)
                or kyverno.is_policy(item)
                or gatekeeper.is_policy(item)
                or text(item.get("kind")) == "CustomResourceDefinition"
            ),
            present=frozenset(
                _identity(item) for item in objects if text(item.get("kind")) in _POLICY_KINDS
            ),
            bindings=pod_security_policies.bindings_in(objects),
            templates=gatekeeper.class_templates(objects),
        )


def migrate_live_object(item: dict[str, Any], facts: LiveFacts) -> LiveOutcome:
    """Return the changes of a workload, a pod or a policy, without new objects that exist."""
    if pod_security_policies.is_policy(item):
        outcome = pod_security_policies.migrate_policy(item, facts.bindings)
    elif kyverno.is_policy(item):
        outcome = kyverno.migrate_policy(item, facts.classes)
    elif gatekeeper.is_policy(item):
        outcome = gatekeeper.migrate_policy(item, facts.templates, facts.classes)
    elif text(item.get("kind")) == "CustomResourceDefinition":
        outcome = alpha_classes.migrate_definition(item)
    else:
        annotated = migrate_annotations(item, facts.options.class_names())
        done = annotated.outcome
        return LiveOutcome(done.operations, (), done.notes, annotated.meaning)
    outcome = valid_only(outcome)
    new = [created for created in outcome.objects if _identity(created) not in facts.present]
    return LiveOutcome((), new, outcome.notes)


def class_objects(
    meanings: Iterable[Meaning], facts: LiveFacts
) -> Iterator[tuple[dict[str, Any] | None, Sequence[tuple[Severity, str]], str]]:
    """Yield, for what annotations asked for, the classes to create, notes, and what they are about.

    A class that the user chose must exist; it is not made up.
    """
    for meaning in sorted(meanings):
        name = facts.options.class_names()[meaning]
        if name in facts.classes:
            continue
        if meaning in facts.options.classes:
            lacking = f"the cluster has no RuntimeClass {name!r}: create it, or no pod can start"
            yield None, [note(lacking)], f"--class {meaning}={name}"
            continue
        _, handler = DEFAULT_CLASSES[meaning]
        yield class_object(name, handler, isolation_of(handler)), [], name


def is_left_to_owner(item: dict[str, Any]) -> bool:
    """Return whether a controller made an object, so that its owner is migrated instead."""
    owners = table(item.get("metadata")).get("ownerReferences")
    return isinstance(owners, list) and any(
        table(owner).get("controller") is True for owner in owners
    )


def merge_patch(item: dict[str, Any], operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the merge patch that performs operations on an object of this resourceVersion.

    Source: RFC 7386.
    """
    patch = _difference(item, applied(item, operations))
    version = table(item.get("metadata")).get("resourceVersion")
    patch.setdefault("metadata", {})["resourceVersion"] = version
    return patch


def _difference(old: Any, new: Any) -> dict[str, Any]:
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old:
            patch[key] = value
        elif value != old[key]:
            is_map = isinstance(value, dict) and isinstance(old[key], dict)
            patch[key] = _difference(old[key], value) if is_map else value
    return patch


def _name(item: dict[str, Any]) -> str:
    return text(table(item.get("metadata")).get("name"))


def _identity(item: dict[str, Any]) -> tuple[str, str, str]:
    metadata = table(item.get("metadata"))
    return text(item.get("kind")), text(metadata.get("namespace")), text(metadata.get("name"))
