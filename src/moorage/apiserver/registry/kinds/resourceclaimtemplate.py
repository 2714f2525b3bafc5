"""ResourceClaimTemplates. Source: resource validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.columns import AGE, NAME, printer
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy
from moorage.apiserver.registry.validation.declared import DeclaredError, in_order
from moorage.apiserver.registry.validation.device_claims import (
    claim_spec_errors,
    default_claim_spec,
    drop_disabled_claim_fields,
)
from moorage.apiserver.registry.validation.metadata import embedded_metadata_errors

_TYPES = "io.k8s.api.resource.v1"


def _claim_spec(template: Obj) -> Obj:
    spec: Obj = template.get("spec", {}).get("spec", {})
    return spec


def default_resource_claim_template(template: Obj) -> None:
    """Set the API defaults of a ResourceClaimTemplate."""
    default_claim_spec(_claim_spec(template))


def prepare_resource_claim_template(template: Obj) -> None:
    """Reset what a new ResourceClaimTemplate may not have."""
    drop_disabled_claim_fields(_claim_spec(template))


def prepare_resource_claim_template_update(new: Obj, old: Obj) -> None:
    """Reset what an update of a ResourceClaimTemplate may not add."""
    drop_disabled_claim_fields(_claim_spec(new), _claim_spec(old))


def validate_resource_claim_template(template: Obj) -> list[FieldError]:
    """Return the errors of a new ResourceClaimTemplate."""
    return in_order(_template_errors(template))


def validate_resource_claim_template_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update: those of the new one, whose specification is immutable."""
    errors = [*_template_errors(new)]
    if new.get("spec") == old.get("spec"):
        # Declared rules do not look at what is unchanged.
        return [error for error in errors if not isinstance(error, DeclaredError)]
    return in_order([*errors, FieldError.invalid("spec", new["spec"], "field is immutable")])


def _template_errors(template: Obj) -> Iterator[FieldError]:
    meta = template.get("spec", {}).get("metadata", {})
    yield from embedded_metadata_errors(meta, "spec.metadata")
    yield from claim_spec_errors(_claim_spec(template), "spec.spec")


RESOURCE_CLAIM_TEMPLATE = Kind(
    name="ResourceClaimTemplate",
    plural="resourceclaimtemplates",
    served=(Served(group="resource.k8s.io", version="v1", type=f"{_TYPES}.ResourceClaimTemplate"),),
    strategy=Strategy(
        default=default_resource_claim_template,
        prepare_create=prepare_resource_claim_template,
        prepare_update=prepare_resource_claim_template_update,
        validate=validate_resource_claim_template,
        validate_update=validate_resource_claim_template_update,
        returns_deleted=True,
    ),
    printer=printer(NAME, AGE),
)
