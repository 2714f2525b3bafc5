"""MutatingAdmissionPolicyBindings. Source: admissionregistration validation of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.admission import POLICY_BINDINGS
from moorage.apiserver.registry.declare.rules import update, validator, whole
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy, get_spec
from moorage.apiserver.registry.validation.admission_policies import (
    binding_errors,
    default_binding,
    warn_about_name,
)
from moorage.apiserver.registry.validation.admission_rules import (
    mutable_operation_errors,
    static_name_errors,
)

_TYPES = "io.k8s.api.admissionregistration.v1"


def _spec_errors(spec: Obj) -> Iterator[FieldError]:
    yield from binding_errors(spec)
    yield from mutable_operation_errors(spec.get("matchResources", {}), "spec.matchResources")


_SPEC = ("spec", whole(_spec_errors))

MUTATING_ADMISSION_POLICY_BINDING = Kind(
    name="MutatingAdmissionPolicyBinding",
    plural="mutatingadmissionpolicybindings",
    served=(
        Served(
            group="admissionregistration.k8s.io",
            version="v1",
            type=f"{_TYPES}.MutatingAdmissionPolicyBinding",
        ),
    ),
    is_namespaced=False,
    categories=("api-extensions",),
    strategy=Strategy(
        default=default_binding,
        validate=validator(_SPEC, ("", whole(static_name_errors))),
        validate_update=update(validator(_SPEC)),
        warn=warn_about_name,
        spec_of=get_spec,
        needs_revision_on_update=True,
    ),
    printer=POLICY_BINDINGS,
)
