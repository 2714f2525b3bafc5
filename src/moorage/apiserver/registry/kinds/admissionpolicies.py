"""Admission policies and their bindings. Source: admissionregistration of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.rules import always_text, required, update, validator, whole
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Printer,
    Served,
    Strategy,
    get_spec,
    status_subresource,
)
from moorage.apiserver.registry.preparation import drop_status, keep_all_but_status, keep_status
from moorage.apiserver.registry.validation.admission_policies import (
    binding_errors,
    condition_and_variable_errors,
    default_binding,
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
from moorage.apiserver.registry.validation.conditions import condition_errors
from moorage.apiserver.registry.validation.expressions import expression_errors, policy_expressions
from moorage.apiserver.registry.validation.go_shapes import Shape, go_struct
from moorage.apiserver.registry.validation.repeated import repeated

_UNSET = "<unset>"
_PARAM_KIND = "ParamKind specifies the kind of resources used to parameterize this policy"
_TYPES = "io.k8s.api.admissionregistration.v1"
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_MAX_ANNOTATIONS = 20
_ANNOTATION_MAX_BYTES = 5 * 1024
_ANNOTATION: Shape = (("key", "Key", ""), ("valueExpression", "ValueExpression", ""))
_WARNINGS = "status.typeChecking.expressionWarnings[*]"
_ACTIONS = ("Audit", "Deny", "Warn")


def policy_printer(name: str, description: str) -> Printer:
    """Return the printer of a policy. The column `name` counts the items of a field like it."""
    return printer(
        NAME,
        column(name, f"spec.{name.lower()}", "integer", show=len, description=description),
        column(
            "ParamKind",
            "spec.paramKind",
            absent=_UNSET,
            show=_kind_text,
            description=_PARAM_KIND,
        ),
        AGE,
    )


def _kind_text(param: Obj) -> str:
    return f"{param.get('apiVersion', '')}/{param.get('kind', '')}"


def _param_text(reference: Obj) -> str:
    if name := reference.get("name"):
        return f"{reference.get('namespace') or '*'}/{name}"
    return _selector_text(reference["selector"]) if "selector" in reference else _UNSET


def _selector_text(selector: Obj) -> str:
    """Return a label selector as Go prints the struct."""
    labels = "".join(f"{key}: {selector['matchLabels'][key]}," for key in sorted(
        selector.get("matchLabels", {})
    ))  # fmt: skip
    requirements = "".join(
        f"LabelSelectorRequirement{{Key:{requirement.get('key', '')},"
        f"Operator:{requirement.get('operator', '')},"
        f"Values:[{' '.join(requirement.get('values', ()))}],}},"
        for requirement in selector.get("matchExpressions", ())
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{requirements}}},}}"
    )


POLICY_BINDINGS = printer(
    NAME,
    column(
        "PolicyName",
        "spec.policyName",
        description="PolicyName indicates the policy definition which the policy binding binded to",
    ),
    column(
        "ParamRef",
        "spec.paramRef",
        absent=_UNSET,
        show=_param_text,
        description="ParamRef indicates the param resource which sets the configuration param",
    ),
    AGE,
)


def _validating_errors(policy: Obj) -> list[FieldError]:
    """Return the errors of a new policy."""
    return [*_validating_spec_errors(policy, None), *static_name_errors(policy)]


def _validating_update_errors(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of a policy."""
    return [*_validating_spec_errors(new, old.get("spec", {}))]


def _blank_errors(text: str, path: str) -> Iterator[FieldError]:
    if not text.strip():
        yield FieldError.required(path)


_validate_status = validator(
    (f"{_WARNINGS}.warning", required),
    (f"{_WARNINGS}.fieldRef", always_text(_blank_errors)),
    ("status.conditions", condition_errors),
)


def _validating_spec_errors(policy: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = policy.get("spec", {})
    yield from policy_errors(spec)
    yield from condition_and_variable_errors(spec, old)
    validations, annotations = spec.get("validations", []), spec.get("auditAnnotations", [])
    if not validations and not annotations:
        detail = "validations or auditAnnotations must contain at least one item"
        yield FieldError.required("spec.validations", detail)
        yield FieldError.required("spec.auditAnnotations", detail)
    for index, validation in enumerate(validations):
        yield from _validation_errors(validation, f"spec.validations[{index}]")
    yield from _annotations_errors(policy["metadata"].get("name", ""), annotations)


def _validation_errors(validation: Obj, path: str) -> Iterator[FieldError]:
    yield from expression_errors(
        validation.get("expression", ""),
        f"{path}.expression",
        detail="expression is not specified",
    )
    message = validation.get("message", "")
    for field in ("messageExpression", "message"):
        text = validation.get(field, "")
        if text and not text.strip():
            yield FieldError.invalid(f"{path}.{field}", text, "must be non-empty if specified")
    if "\n" in message.strip() or "\r" in message.strip():
        yield FieldError.invalid(f"{path}.message", message, "must not contain line breaks")
    yield from choice_errors(validation, "reason", path, _REASONS, is_required=False)


def _annotations_errors(policy: str, annotations: list[Obj]) -> Iterator[FieldError]:
    path = "spec.auditAnnotations"
    if len(annotations) > _MAX_ANNOTATIONS:
        shown = [go_struct(annotation, _ANNOTATION) for annotation in annotations]
        yield FieldError.invalid(
            path, shown, f"must not have more than {_MAX_ANNOTATIONS} auditAnnotations"
        )
    seen: set[str] = set()
    for index, annotation in enumerate(annotations):
        at, key = f"{path}[{index}]", annotation.get("key", "")
        if policy:
            for detail in names.qualified_name_errors(f"{policy}/{key}"):
                yield FieldError.invalid(f"{at}.key", f"{policy}/{key}", detail)
        else:
            yield FieldError.invalid(f"{at}.key", key, "requires metadata.name be non-empty")
        yield from expression_errors(
            annotation.get("valueExpression", ""),
            f"{at}.valueExpression",
            detail="valueExpression is not specified",
            limit_bytes=_ANNOTATION_MAX_BYTES,
        )
        if key in seen:
            yield FieldError.duplicate(f"{at}.key", key)
        seen.add(key)


_VALIDATIONS = policy_printer(
    "Validations",
    "Validations indicates the number of validation rules defined in this configuration",
)


def _kind(name: str, plural: str, printer: Printer, **rules: Any) -> Kind:
    """Return the declaration of a kind of policies or bindings with these rules of its own."""
    return Kind(
        name=name,
        plural=plural,
        served=(Served("admissionregistration.k8s.io", "v1", f"{_TYPES}.{name}"),),
        is_namespaced=False,
        categories=("api-extensions",),
        strategy=Strategy(
            warn=warn_about_name, spec_of=get_spec, needs_revision_on_update=True, **rules
        ),
        printer=printer,
        subresources=status_subresource() if "parts" in rules else {},
    )


VALIDATING_ADMISSION_POLICY = _kind(
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
    _VALIDATIONS,
    default=default_policy,
    prepare_create=drop_status,
    prepare_update=keep_status,
    validate=_validating_errors,
    validate_update=_validating_update_errors,
    parts={"status": PartRules(keep_all_but_status, update(_validate_status))},
    expressions=policy_expressions,
)

_PATCHES = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
"""Types of patches, with the field that holds the patch."""


def _mutating_errors(policy: Obj) -> list[FieldError]:
    """Return the errors of a new policy."""
    return [*_mutating_spec_errors(policy.get("spec", {}), None), *static_name_errors(policy)]


def _mutating_update_errors(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of a policy."""
    return [*_mutating_spec_errors(new.get("spec", {}), old.get("spec", {}))]


def _mutating_spec_errors(spec: Obj, old: Obj | None) -> Iterator[FieldError]:
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


_MUTATIONS = policy_printer(
    "Mutations",
    "Mutation indicates the number of mutations rules defined in this configuration",
)

MUTATING_ADMISSION_POLICY = _kind(
    "MutatingAdmissionPolicy",
    "mutatingadmissionpolicies",
    _MUTATIONS,
    default=default_policy,
    validate=_mutating_errors,
    validate_update=_mutating_update_errors,
    expressions=policy_expressions,
)


def _validating_binding_errors(spec: Obj) -> Iterator[FieldError]:
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


def _binding_kind(name: str, plural: str, errors: Callable[[Obj], Iterable[FieldError]]) -> Kind:
    spec = ("spec", whole(errors))
    return _kind(
        name,
        plural,
        POLICY_BINDINGS,
        default=default_binding,
        validate=validator(spec, ("", whole(static_name_errors))),
        validate_update=update(validator(spec)),
    )


VALIDATING_ADMISSION_POLICY_BINDING = _binding_kind(
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    _validating_binding_errors,
)


def _mutating_binding_errors(spec: Obj) -> Iterator[FieldError]:
    yield from binding_errors(spec)
    yield from mutable_operation_errors(spec.get("matchResources", {}), "spec.matchResources")


MUTATING_ADMISSION_POLICY_BINDING = _binding_kind(
    "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", _mutating_binding_errors
)
