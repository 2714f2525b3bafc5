"""Access review selectors: validation, and the selectors passed to authorizers.

RBAC ignores selectors; the node authorizer allows a node agent to list its own pods by
`spec.nodeName`, and its own volumes by a label. A requirement that cannot be parsed is dropped,
which widens the review, and reported in `evaluationError`. Source: authorization.k8s.io/v1
`FieldSelectorAttributes` and `LabelSelectorAttributes`, KEP-4601; upstream's
`pkg/apis/authorization/validation` and `pkg/registry/authorization/util`.
"""

from __future__ import annotations

from moorage.api import labels
from moorage.api.errors import FieldError
from moorage.api.fields import EVERYTHING, FieldRequirement, FieldSelector, parse
from moorage.api.labels import Requirement, Selector
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.scheduling import label_requirement_errors

_PATH = "spec.resourceAttributes"
_WITH_VALUES = ("In", "NotIn")
_WITHOUT_VALUES = ("Exists", "DoesNotExist")
_LABEL_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def selector_errors(attributes: Obj) -> list[FieldError]:
    """Validate the selectors of `resourceAttributes`. Unknown operators pass, for newer clients."""
    errors: list[FieldError] = []
    if "fieldSelector" in attributes:
        path, selector = f"{_PATH}.fieldSelector", attributes["fieldSelector"]
        errors += _form_errors(selector, path)
        for index, requirement in enumerate(selector.get("requirements", ())):
            errors += _field_errors(requirement, f"{path}.requirements[{index}]")
    if "labelSelector" in attributes:
        path, selector = f"{_PATH}.labelSelector", attributes["labelSelector"]
        errors += _form_errors(selector, path)
        for index, requirement in enumerate(selector.get("requirements", ())):
            at = f"{path}.requirements[{index}]"
            errors += _operator_errors(requirement, at)
            errors += label_requirement_errors(requirement, at)
    return errors


def read_selectors(attributes: Obj) -> tuple[FieldSelector, Selector, str]:
    """Return the parsed field and label requirements, and the `evaluationError`, empty for none.

    The attributes are valid.
    """
    selector, label_selector, errors = EVERYTHING, labels.EVERYTHING, []
    if asked := attributes.get("fieldSelector"):
        selector, is_whole = _read_fields(asked)
        if not is_whole:
            errors.append(_ignored("fieldSelector", is_partial=not selector.is_everything))
    if asked := attributes.get("labelSelector"):
        label_selector, is_whole = _read_labels(asked)
        if not is_whole:
            is_partial = not label_selector.is_everything
            errors.append(_ignored("labelSelector", is_partial=is_partial))
    return selector, label_selector, "; ".join(errors)


def _form_errors(selector: Obj, path: str) -> list[FieldError]:
    raw, requirements = selector.get("rawSelector", ""), selector.get("requirements")
    if raw and requirements:
        why = "may not specified at the same time as requirements"
        return [FieldError.invalid(f"{path}.rawSelector", raw, why)]
    if not raw and not requirements:
        why = f"when {path} is specified, requirements or rawSelector is required"
        return [FieldError.required(f"{path}.requirements", why)]
    return []


def _field_errors(requirement: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if not requirement.get("key"):
        errors.append(FieldError.required(f"{path}.key", "must be specified"))
    return errors + _operator_errors(requirement, path)


def _operator_errors(requirement: Obj, path: str) -> list[FieldError]:
    operator, values = requirement.get("operator", ""), requirement.get("values")
    if operator in _WITH_VALUES and not values:
        why = "must be specified when `operator` is 'In' or 'NotIn'"
        return [FieldError.required(f"{path}.values", why)]
    if operator in _WITHOUT_VALUES and values:
        why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        return [FieldError.forbidden(f"{path}.values", why)]
    return []


def _read_fields(asked: Obj) -> tuple[FieldSelector, bool]:
    """Return the requirements that parse, and whether none was dropped."""
    if raw := asked.get("rawSelector"):
        try:
            return parse(raw), True
        except ValueError:
            return EVERYTHING, False
    requirements = asked["requirements"]
    # Field selectors compare with one value, as in their text form.
    read = tuple(
        FieldRequirement(
            requirement["key"], requirement["values"][0], is_equal=requirement["operator"] == "In"
        )
        for requirement in requirements
        if requirement["operator"] in _WITH_VALUES and len(requirement["values"]) == 1
    )
    return FieldSelector(read), len(read) == len(requirements)


def _read_labels(asked: Obj) -> tuple[Selector, bool]:
    """Return the requirements with operators that are known, and whether none was dropped."""
    if raw := asked.get("rawSelector"):
        try:
            return labels.parse(raw), True
        except ValueError:
            return labels.EVERYTHING, False
    requirements = asked["requirements"]
    read = tuple(
        Requirement(
            requirement["key"],
            _LABEL_OPERATORS[requirement["operator"]],
            tuple(sorted(requirement.get("values", ()))),
        )
        for requirement in requirements
        if requirement.get("operator") in _LABEL_OPERATORS
    )
    return Selector(read), len(read) == len(requirements)


def _ignored(field: str, *, is_partial: bool) -> str:
    how = "partially ignored" if is_partial else "ignored"
    return f"{_PATH}.{field} {how} due to parse error"
