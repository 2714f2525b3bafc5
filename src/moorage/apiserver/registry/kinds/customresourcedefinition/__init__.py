"""CustomResourceDefinitions. Source: apiextensions validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from moorage.apiserver.registry.declare.columns import CREATED_AT, NAME, column, printer
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    get_spec,
    status_subresource,
)
from moorage.apiserver.registry.kinds.customresourcedefinition.conditions import (
    is_established,
    set_condition,
)
from moorage.apiserver.registry.kinds.customresourcedefinition.validation import (
    validate_definition,
    validate_definition_status,
    validate_definition_update,
)
from moorage.apiserver.registry.kinds.customresourcedefinition.versions import (
    definition_expressions,
    schema_of,
)
from moorage.apiserver.registry.preparation import keep_spec, keep_status
from moorage.apiserver.registry.validation.custom_schema import schema_warnings

_WEBHOOK_PORT = 443
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
"""Finalizer that stands until every instance is deleted."""
_TYPES = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"


def _versions_text(versions: list[Obj]) -> str:
    return ",".join(
        sorted(
            version.get("name", "") + ("(storage)" if version.get("storage") else "")
            for version in versions
            if version.get("served")
        )
    )


PRINTER = printer(
    NAME,
    column("Scope", "spec.scope", description="Cluster/Namespaced"),
    column("Versions", "spec.versions", show=_versions_text, description="Served versions"),
    CREATED_AT,
    column("Group", "spec.group", description="API group", priority=1),
    column("Kind", "spec.names.kind", description="CustomResource kind", priority=1),
    column(
        "ShortNames",
        "spec.names.shortNames",
        show=",".join,
        description="Short names",
        priority=1,
    ),
    column(
        "Established",
        is_established,
        "boolean",
        description="Established status",
        priority=1,
    ),
)


def default_definition(definition: Obj) -> None:
    """Set the API defaults of a CustomResourceDefinition."""
    spec = definition.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    if not names.get("singular") and kind:
        names["singular"] = kind.lower()
    if not names.get("listKind") and kind:
        names["listKind"] = f"{kind}List"
    conversion = spec.setdefault("conversion", {"strategy": "None"})
    service = conversion.get("webhook", {}).get("clientConfig", {}).get("service")
    if service is not None:
        service.setdefault("port", _WEBHOOK_PORT)
    add_storage_version(definition, only_if_none=True)


def add_storage_version(definition: Obj, *, only_if_none: bool = False) -> None:
    """Record in the status that objects are stored in the storage version."""
    stored = definition.get("status", {}).get("storedVersions", [])
    storage = next(
        (version for version in definition["spec"].get("versions", ()) if version.get("storage")),
        None,
    )
    if storage is None or (stored and only_if_none) or storage.get("name", "") in stored:
        return
    # An update has its status from the old object, which must not change.
    definition["status"] = {
        **definition.get("status", {}), "storedVersions": [*stored, storage.get("name", "")]
    }  # fmt: skip


def mark_definition_deleted(definition: Obj) -> None:
    """Hold an established definition until its instances are deleted."""
    if not is_established(definition):
        return
    metadata = definition["metadata"]
    finalizers = metadata.setdefault("finalizers", [])
    if CLEANUP not in finalizers:
        finalizers.append(CLEANUP)
    conditions = definition["status"].setdefault("conditions", [])
    set_condition(
        conditions, "Terminating", "True", "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        metadata["deletionTimestamp"],
    )  # fmt: skip


def is_definition_held(definition: Obj) -> bool:
    """Return whether instances may remain: deletion begins by adding the finalizer."""
    return is_established(definition) and "deletionTimestamp" not in definition["metadata"]


def prepare_definition_create(definition: Obj) -> None:
    """Reset the status of a new definition; its storage version counts as stored."""
    definition["status"] = {}
    add_storage_version(definition)


def prepare_definition_update(new: Obj, old: Obj) -> None:
    """Keep the status, and add a new storage version to the stored ones."""
    keep_status(new, old)
    add_storage_version(new)


def warn_about_definition(new: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about formats and sets that the old definition does not have."""
    known = {} if old is None else dict.fromkeys(_schema_warnings(old))
    return [text for text in dict.fromkeys(_schema_warnings(new)) if text not in known]


def _schema_warnings(definition: Obj) -> list[str]:
    formats: list[str] = []
    sets: set[str] = set()
    for version in definition["spec"].get("versions", ()):
        if (schema := schema_of(version.get("schema"))) is not None:
            schema_formats, schema_sets = schema_warnings(schema)
            formats += schema_formats
            sets.update(schema_sets)
    return [*formats, *sorted(sets)]


CUSTOM_RESOURCE_DEFINITION = Kind(
    name="CustomResourceDefinition",
    plural="customresourcedefinitions",
    served=(Served("apiextensions.k8s.io", "v1", f"{_TYPES}.CustomResourceDefinition"),),
    is_namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    strategy=Strategy(
        default=default_definition,
        prepare_create=prepare_definition_create,
        prepare_update=prepare_definition_update,
        validate=validate_definition,
        validate_update=validate_definition_update,
        expressions=definition_expressions,
        parts={"status": PartRules(prepare=keep_spec, validate=validate_definition_status)},
        warn=warn_about_definition,
        spec_of=get_spec,
        needs_revision_on_update=True,
        mark_deleted=mark_definition_deleted,
        is_held=is_definition_held,
    ),
    printer=PRINTER,
    subresources=status_subresource(),
)
