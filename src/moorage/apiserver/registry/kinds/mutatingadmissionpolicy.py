"""MutatingAdmissionPolicies. Source: admissionregistration validation of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.admission import policy_printer
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy, get_spec
from moorage.apiserver.registry.validation.admission_policies import (
    condition_and_variable_errors,
    default_policy,
    policy_errors,
    warn_about_name,
)
from moorage.apiserver.registry.validation.admission_rules import (
    REINVOCATION_POLICIES,
    choice_errors,
    mutable_operation_errors,
    static_name_errors,
)
from moorage.apiserver.registry.validation.expressions import expression_errors
from moorage.apiserver.registry.validation.policy_expressions import policy_expressions

_TYPES = "io.k8s.api.admissionregistration.v1"
_PATCHES = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
"""Types of patches, with the field that holds the patch."""


def validate_policy(policy: Obj) -> list[FieldError]:
    """Return the errors of a new policy."""
    return [*_spec_errors(policy.get("spec", {}), None), *static_name_errors(policy)]


def validate_policy_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of a policy."""
    return [*_spec_errors(new.get("spec", {}), old.get("spec", {}))]


def _spec_errors(spec: Obj, old: Obj | None) -> Iterator[FieldError]:
    yield from policy_errors(spec)
    yield from mutable_operation_errors(spec.get("matchConstraints", {}), "spec.matchConstraints")
    yield from condition_and_variable_errors(spec, old)
    mutations = spec.get("mutations", [])
    if not mutations:
        yield FieldError.required("spec.mutations", "mutations must contain at least one item")
    for index, mutation in enumerate(mutations):
        yield from _mutation_errors(mutation, f"spec.mutations[{index}]")
    yield from choice_errors(spec, "reinvocationPolicy", "spec", REINVOCATION_POLICIES)


def _mutation_errors(mutation: Obj, path: str) -> Iterator[FieldError]:
    patch_type = mutation.get("patchType", "")
    if not patch_type:
        yield FieldError.required(f"{path}.patchType")
        return
    if patch_type not in _PATCHES:
        yield FieldError.not_supported(f"{path}.patchType", patch_type, tuple(_PATCHES))
        return
    field = _PATCHES[patch_type]
    if field not in mutation:
        yield FieldError.required(
            f"{path}.{field}", f"must be specified when patchType is {patch_type}"
        )
    else:
        expression = mutation[field].get("expression", "")
        yield from expression_errors(expression, f"{path}.{field}.expression")
    for other in _PATCHES.values():
        if other != field and other in mutation:
            yield FieldError.invalid(
                f"{path}.{other}",
                f"{{{other}}}",
                f"must not be specified when patchType is {patch_type}",
            )


_PRINTER = policy_printer(
    "Mutations",
    "Mutation indicates the number of mutations rules defined in this configuration",
)


MUTATING_ADMISSION_POLICY = Kind(
    name="MutatingAdmissionPolicy",
    plural="mutatingadmissionpolicies",
    served=(
        Served(
            group="admissionregistration.k8s.io",
            version="v1",
            type=f"{_TYPES}.MutatingAdmissionPolicy",
        ),
    ),
    is_namespaced=False,
    categories=("api-extensions",),
    strategy=Strategy(
        default=default_policy,
        validate=validate_policy,
        validate_update=validate_policy_update,
        expressions=policy_expressions,
        warn=warn_about_name,
        spec_of=get_spec,
        needs_revision_on_update=True,
    ),
    printer=_PRINTER,
)
