"""ValidatingAdmissionPolicies. Source: admissionregistration validation of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.admission import policy_printer
from moorage.apiserver.registry.declare.rules import always_text, required, update, validator
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    get_spec,
    status_subresource,
)
from moorage.apiserver.registry.preparation import drop_status, keep_all_but_status, keep_status
from moorage.apiserver.registry.validation.admission_policies import (
    condition_and_variable_errors,
    default_policy,
    policy_errors,
    warn_about_name,
)
from moorage.apiserver.registry.validation.admission_rules import choice_errors, static_name_errors
from moorage.apiserver.registry.validation.conditions import condition_errors
from moorage.apiserver.registry.validation.expressions import expression_errors
from moorage.apiserver.registry.validation.go_shapes import Shape, go_struct
from moorage.apiserver.registry.validation.policy_expressions import policy_expressions

_TYPES = "io.k8s.api.admissionregistration.v1"
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_MAX_ANNOTATIONS = 20
_ANNOTATION_MAX_BYTES = 5 * 1024
_ANNOTATION: Shape = (("key", "Key", ""), ("valueExpression", "ValueExpression", ""))


def validate_policy(policy: Obj) -> list[FieldError]:
    """Return the errors of a new policy."""
    return [*_spec_errors(policy, None), *static_name_errors(policy)]


def validate_policy_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of a policy."""
    return [*_spec_errors(new, old.get("spec", {}))]


def _blank_errors(text: str, path: str) -> Iterator[FieldError]:
    if not text.strip():
        yield FieldError.required(path)


_WARNINGS = "status.typeChecking.expressionWarnings[*]"
_validate_status = validator(
    (f"{_WARNINGS}.warning", required),
    (f"{_WARNINGS}.fieldRef", always_text(_blank_errors)),
    ("status.conditions", condition_errors),
)


def _spec_errors(policy: Obj, old: Obj | None) -> Iterator[FieldError]:
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


_PRINTER = policy_printer(
    "Validations",
    "Validations indicates the number of validation rules defined in this configuration",
)


VALIDATING_ADMISSION_POLICY = Kind(
    name="ValidatingAdmissionPolicy",
    plural="validatingadmissionpolicies",
    served=(
        Served(
            group="admissionregistration.k8s.io",
            version="v1",
            type=f"{_TYPES}.ValidatingAdmissionPolicy",
        ),
    ),
    is_namespaced=False,
    categories=("api-extensions",),
    strategy=Strategy(
        default=default_policy,
        prepare_create=drop_status,
        prepare_update=keep_status,
        validate=validate_policy,
        validate_update=validate_policy_update,
        parts={"status": PartRules(keep_all_but_status, update(_validate_status))},
        expressions=policy_expressions,
        warn=warn_about_name,
        spec_of=get_spec,
        needs_revision_on_update=True,
    ),
    printer=_PRINTER,
    subresources=status_subresource(),
)
