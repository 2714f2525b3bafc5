"""CustomResourceDefinitions. Source: apiextensions validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    get_spec,
    status_subresource,
)
from moorage.apiserver.registry.kinds.customresourcedefinition.columns import PRINTER
from moorage.apiserver.registry.kinds.customresourcedefinition.defaults import (
    add_storage_version,
    default_definition,
)
from moorage.apiserver.registry.kinds.customresourcedefinition.deletion import (
    is_definition_held,
    mark_definition_deleted,
)
from moorage.apiserver.registry.kinds.customresourcedefinition.expressions import (
    definition_expressions,
)
from moorage.apiserver.registry.kinds.customresourcedefinition.validation import (
    validate_definition,
    validate_definition_status,
    validate_definition_update,
)
from moorage.apiserver.registry.kinds.customresourcedefinition.versions import schema_of
from moorage.apiserver.registry.preparation import keep_spec, keep_status
from moorage.apiserver.registry.validation.custom_schema import schema_warnings

_TYPES = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"


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
    served=(
        Served(
            group="apiextensions.k8s.io", version="v1", type=f"{_TYPES}.CustomResourceDefinition"
        ),
    ),
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
