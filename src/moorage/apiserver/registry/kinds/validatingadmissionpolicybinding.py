"""ValidatingAdmissionPolicyBindings.

Source: admissionregistration validation of Kubernetes 1.36.
"""

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
from moorage.apiserver.registry.validation.admission_rules import static_name_errors
from moorage.apiserver.registry.validation.repeated import repeated

_TYPES = "io.k8s.api.admissionregistration.v1"
_ACTIONS = ("Audit", "Deny", "Warn")


def _spec_errors(spec: Obj) -> Iterator[FieldError]:
    yield from binding_errors(spec)
    path, actions = "spec.validationActions", spec.get("validationActions", [])
    repeats = repeated(actions)
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            yield FieldError.not_supported(f"{path}[{index}]", action, _ACTIONS)
        if index in repeats:
            yield FieldError.duplicate(f"{path}[{index}]", action)
    if "Deny" in actions and "Warn" in actions:
        yield FieldError.invalid(
            path,
            actions,
            "must not contain both Deny and Warn (repeating the same validation failure "
            "information in the API response and headers serves no purpose)",
        )
    if not actions:
        yield FieldError.required(path)


_SPEC = ("spec", whole(_spec_errors))

VALIDATING_ADMISSION_POLICY_BINDING = Kind(
    name="ValidatingAdmissionPolicyBinding",
    plural="validatingadmissionpolicybindings",
    served=(
        Served(
            group="admissionregistration.k8s.io",
            version="v1",
            type=f"{_TYPES}.ValidatingAdmissionPolicyBinding",
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
