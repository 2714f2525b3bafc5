"""Namespaces. Source: core `ValidateNamespace` and namespace strategies of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.rules import each, update, validator
from moorage.apiserver.registry.kind import (
    ALL_VERBS,
    Kind,
    Obj,
    PartRules,
    SelectableField,
    Served,
    Strategy,
    Subresource,
    status_subresource,
)
from moorage.apiserver.registry.preparation import keep_spec, keep_status, put
from moorage.apiserver.registry.validation.metadata import key_complaints

_NAME_LABEL = "kubernetes.io/metadata.name"
_FINALIZER = "kubernetes"
_STANDARD = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_NO_COLLECTION_DELETE = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")


def default_namespace(namespace: Obj) -> None:
    """Set the API defaults of a Namespace."""
    metadata = namespace["metadata"]
    if metadata.get("name"):
        metadata["labels"] = {**metadata.get("labels", {}), _NAME_LABEL: metadata["name"]}
    namespace.setdefault("status", {}).setdefault("phase", "Active")


def prepare_namespace_create(namespace: Obj) -> None:
    """Reset the fields of a new Namespace that clients may not set."""
    namespace["status"] = {"phase": "Active"}
    finalizers = namespace.setdefault("spec", {}).setdefault("finalizers", [])
    if _FINALIZER not in finalizers:
        finalizers.append(_FINALIZER)
    # A generated name is known only now.
    metadata = namespace["metadata"]
    metadata["labels"] = {**metadata.get("labels", {}), _NAME_LABEL: metadata.get("name", "")}


def prepare_namespace_update(new: Obj, old: Obj) -> None:
    """Keep the fields of a Namespace that an update may not change."""
    put(new.setdefault("spec", {}), "finalizers", old.get("spec", {}).get("finalizers"))
    keep_status(new, old)


def prepare_namespace_finalize(new: Obj, old: Obj) -> None:
    """Keep everything but the finalizers in the spec."""
    keep_status(new, old)


def _finalizer_errors(finalizer: str, path: str) -> Iterator[FieldError]:
    complaints = key_complaints(finalizer)
    for complaint in complaints:
        yield FieldError.invalid(path, finalizer, complaint)
    if not complaints and "/" not in finalizer and finalizer not in _STANDARD:
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        yield FieldError.invalid(path, finalizer, detail)


validate_namespace = validator(("spec.finalizers", each(_finalizer_errors)))
validate_namespace_update = update(validate_namespace)


def _hold_namespace(namespace: Obj) -> None:
    namespace.setdefault("status", {})["phase"] = "Terminating"


def _is_namespace_held(namespace: Obj) -> bool:
    return bool(namespace.get("spec", {}).get("finalizers"))


NAMESPACE = Kind(
    name="Namespace",
    plural="namespaces",
    served=(Served(group="", version="v1", type="io.k8s.api.core.v1.Namespace"),),
    is_namespaced=False,
    short_names=("ns",),
    verbs=_NO_COLLECTION_DELETE,
    strategy=Strategy(
        default=default_namespace,
        prepare_create=prepare_namespace_create,
        prepare_update=prepare_namespace_update,
        validate=validate_namespace,
        validate_update=validate_namespace_update,
        parts={
            "status": PartRules(keep_spec, validate_namespace_update),
            "finalize": PartRules(prepare_namespace_finalize, validate_namespace_update),
        },
        name_errors=names.dns_label_errors,
        returns_deleted=True,
        mark_deleted=_hold_namespace,
        is_held=_is_namespace_held,
    ),
    printer=printer(
        NAME,
        column("Status", "status.phase", description="The status of the namespace"),
        AGE,
    ),
    selectable=(SelectableField("status.phase", ("status", "phase")),),
    subresources={**status_subresource(), "finalize": Subresource(verbs=("update",))},
)
