"""Scheduling field validation: tolerations, affinity, topology spread.

Source: core validation of `PodSpec`.
"""

from __future__ import annotations

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.api.remembered import remembered_by_json
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.metadata import label_errors
from moorage.apiserver.registry.validation.repeated import repeated

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS = ("Equal", "Exists")
_NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
_INCLUSION = ("Honor", "Ignore")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WITH_VALUES = ("In", "NotIn")


def toleration_errors(tolerations: list[Obj], path: str) -> list[FieldError]:
    return [] if _are_valid(tolerations) else _errors_of_tolerations(tolerations, path)


@remembered_by_json(1024)
def _are_valid(tolerations: list[Obj]) -> bool:
    """Return whether tolerations have no errors. Hot path: nearly all pods have the same."""
    return not _errors_of_tolerations(tolerations, "")


def _errors_of_tolerations(tolerations: list[Obj], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, toleration in enumerate(tolerations):
        errors += _toleration_errors(toleration, f"{path}[{index}]")
    return errors


def _toleration_errors(toleration: Obj, path: str) -> list[FieldError]:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    value, effect = toleration.get("value", ""), toleration.get("effect", "")
    errors: list[FieldError] = []
    if key:
        errors += [
            FieldError.invalid(f"{path}.key", key, e) for e in names.qualified_name_errors(key)
        ]
    elif operator != "Exists":
        errors.append(
            FieldError.invalid(
                f"{path}.operator",
                operator,
                "operator must be Exists when `key` is empty, which means "
                '"match all values and all keys"',
            )
        )
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        errors.append(
            FieldError.invalid(
                f"{path}.effect",
                effect,
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            )
        )
    if operator in ("", "Equal"):
        complaints = names.label_value_errors(value)
        if complaints:
            errors.append(FieldError.invalid(f"{path}.operator", value, ";".join(complaints)))
    elif operator == "Exists":
        if value:
            errors.append(
                FieldError.invalid(
                    f"{path}.operator", value, "value must be empty when `operator` is 'Exists'"
                )
            )
    else:
        errors.append(FieldError.not_supported(f"{path}.operator", operator, _OPERATORS))
    if effect and effect not in _EFFECTS:
        errors.append(FieldError.not_supported(f"{path}.effect", effect, _EFFECTS))
    return errors


def affinity_errors(affinity: Obj, path: str) -> list[FieldError]:
    """Return the errors of node affinity, pod affinity and pod anti-affinity at a field path."""
    errors: list[FieldError] = []
    if "nodeAffinity" in affinity:
        errors += _node_affinity_errors(affinity["nodeAffinity"], f"{path}.nodeAffinity")
    for field in ("podAffinity", "podAntiAffinity"):
        if field in affinity:
            errors += _pod_affinity_errors(affinity[field], f"{path}.{field}")
    return errors


def _node_affinity_errors(affinity: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if _REQUIRED in affinity:
        errors += node_selector_errors(affinity[_REQUIRED], f"{path}.{_REQUIRED}")
    for index, preferred in enumerate(affinity.get(_PREFERRED, ())):
        at = f"{path}.{_PREFERRED}[{index}]"
        errors += _weight_errors(preferred, at)
        errors += node_term_errors(preferred.get("preference", {}), f"{at}.preference")
    return errors


def _weight_errors(holder: Obj, path: str) -> list[FieldError]:
    weight = holder.get("weight", 0)
    if 1 <= weight <= 100:
        return []
    return [FieldError.invalid(f"{path}.weight", weight, "must be in the range 1-100")]


def node_selector_errors(selector: Obj, path: str) -> list[FieldError]:
    """Validate a node selector: it has terms, each of them valid."""
    terms, at = selector.get("nodeSelectorTerms", []), f"{path}.nodeSelectorTerms"
    if not terms:
        return [FieldError.required(at, "must have at least one node selector term")]
    errors: list[FieldError] = []
    for index, term in enumerate(terms):
        errors += node_term_errors(term, f"{at}[{index}]")
    return errors


def node_term_errors(term: Obj, path: str) -> list[FieldError]:
    """Validate one term of a node selector."""
    errors: list[FieldError] = []
    for index, expression in enumerate(term.get("matchExpressions", ())):
        at = f"{path}.matchExpressions[{index}]"
        errors += _expression_errors(expression, at, _NODE_OPERATORS)
        errors += [
            FieldError.invalid(f"{at}.key", expression.get("key", ""), detail)
            for detail in names.qualified_name_errors(expression.get("key", ""))
        ]
    for index, expression in enumerate(term.get("matchFields", ())):
        errors += _match_field_errors(expression, f"{path}.matchFields[{index}]")
    return errors


def _expression_errors(expression: Obj, path: str, allowed: tuple[str, ...]) -> list[FieldError]:
    operator, values = expression.get("operator", ""), expression.get("values", [])
    if operator not in allowed:
        return [FieldError.invalid(f"{path}.operator", operator, "not a valid selector operator")]
    if operator in _WITH_VALUES and not values:
        return [
            FieldError.required(
                f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"
            )
        ]
    if operator in ("Exists", "DoesNotExist") and values:
        return [
            FieldError.forbidden(
                f"{path}.values",
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )
        ]
    if operator in ("Gt", "Lt") and len(values) != 1:
        return [
            FieldError.required(
                f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"
            )
        ]
    return []


def _match_field_errors(expression: Obj, path: str) -> list[FieldError]:
    operator, values = expression.get("operator", ""), expression.get("values", [])
    errors: list[FieldError] = []
    if operator not in _WITH_VALUES:
        errors.append(
            FieldError.invalid(f"{path}.operator", operator, "not a valid selector operator")
        )
    elif len(values) != 1:
        errors.append(
            FieldError.required(
                f"{path}.values", "must be only one value when `operator` is 'In' or 'NotIn' for "
                "node field selector",
            )
        )  # fmt: skip
    if expression.get("key") != "metadata.name":
        errors.append(
            FieldError.invalid(
                f"{path}.key", expression.get("key", ""), "not a valid field selector key"
            )
        )
    return errors


def _pod_affinity_errors(affinity: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, term in enumerate(affinity.get(_REQUIRED, ())):
        errors += _pod_term_errors(term, f"{path}.{_REQUIRED}[{index}]")
    for index, preferred in enumerate(affinity.get(_PREFERRED, ())):
        at = f"{path}.{_PREFERRED}[{index}]"
        errors += _weight_errors(preferred, at)
        errors += _pod_term_errors(preferred.get("podAffinityTerm", {}), f"{at}.podAffinityTerm")
    return errors


def _pod_term_errors(term: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for field in ("labelSelector", "namespaceSelector"):
        if field in term:
            errors += label_selector_errors(term[field], f"{path}.{field}")
    for namespace in term.get("namespaces", ()):
        errors += [
            FieldError.invalid(f"{path}.namespace", namespace, detail)
            for detail in names.dns_label_errors(namespace)
        ]
    key = term.get("topologyKey", "")
    if not key:
        errors.append(FieldError.required(f"{path}.topologyKey", "can not be empty"))
    errors += [
        FieldError.invalid(f"{path}.topologyKey", key, detail)
        for detail in names.qualified_name_errors(key)
    ]
    return errors + _label_key_errors(term, path)


def _label_key_errors(term: Obj, path: str) -> list[FieldError]:
    """Validate matchLabelKeys and mismatchLabelKeys.

    Values of these labels must be the new pod's (`match`) or must not be (`mismatch`).
    """
    errors: list[FieldError] = []
    mismatched = term.get("mismatchLabelKeys", [])
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        for index, key in enumerate(term.get(field, ())):
            errors += [
                FieldError.invalid(f"{path}.{field}[{index}]", key, detail)
                for detail in names.qualified_name_errors(key)
            ]
    errors += [
        FieldError.invalid(
            f"{path}.matchLabelKeys[{index}]",
            key,
            "exists in both matchLabelKeys and mismatchLabelKeys",
        )
        for index, key in enumerate(term.get("matchLabelKeys", ()))
        if key in mismatched
    ]
    return errors


def label_selector_errors(selector: Obj, path: str) -> list[FieldError]:
    """Validate a `metav1.LabelSelector` in an object."""
    errors = label_errors(selector.get("matchLabels", {}), f"{path}.matchLabels")
    for index, expression in enumerate(selector.get("matchExpressions", ())):
        at = f"{path}.matchExpressions[{index}]"
        errors += _expression_errors(expression, at, _LABEL_OPERATORS)
        errors += label_requirement_errors(expression, at)
    return errors


def label_requirement_errors(requirement: Obj, path: str) -> list[FieldError]:
    """Validate the key and the values of a `metav1.LabelSelectorRequirement`."""
    key = requirement.get("key", "")
    errors = [
        FieldError.invalid(f"{path}.key", key, error) for error in names.qualified_name_errors(key)
    ]
    for index, value in enumerate(requirement.get("values", ())):
        errors += [
            FieldError.invalid(f"{path}.values[{index}]", value, error)
            for error in names.label_value_errors(value)
        ]
    return errors


def spread_errors(constraints: list[Obj], path: str) -> list[FieldError]:
    """Validate topology spread constraints."""
    errors: list[FieldError] = []
    pairs = [
        (constraint.get("topologyKey", ""), constraint.get("whenUnsatisfiable", ""))
        for constraint in constraints
    ]
    # Upstream reports each one that stands again later.
    last = len(pairs) - 1
    repeats = {last - place for place in repeated(reversed(pairs))}
    for index, constraint in enumerate(constraints):
        at = f"{path}[{index}]"
        skew, key = constraint.get("maxSkew", 0), constraint.get("topologyKey", "")
        when = constraint.get("whenUnsatisfiable", "")
        if skew <= 0:
            errors.append(FieldError.invalid(f"{at}.maxSkew", skew, "must be greater than zero"))
        if not key:
            errors.append(FieldError.required(f"{at}.topologyKey", "can not be empty"))
        else:
            errors += [
                FieldError.invalid(f"{at}.topologyKey", key, e)
                for e in names.qualified_name_errors(key)
            ]
        if when not in _UNSATISFIABLE:
            errors.append(FieldError.not_supported(f"{at}.whenUnsatisfiable", when, _UNSATISFIABLE))
        if index in repeats:
            errors.append(
                FieldError.duplicate(
                    f"{at}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {when}}}"
                )
            )
        domains = constraint.get("minDomains")
        if domains is not None:
            if domains <= 0:
                errors.append(
                    FieldError.invalid(f"{at}.minDomains", domains, "must be greater than zero")
                )
            if when != "DoNotSchedule":
                errors.append(
                    FieldError.invalid(
                        f"{at}.minDomains",
                        domains,
                        f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {when}",
                    )
                )
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if field in constraint and constraint[field] not in _INCLUSION:
                errors.append(
                    FieldError.not_supported(f"{at}.{field}", constraint[field], _INCLUSION)
                )
        if "labelSelector" in constraint:
            errors += label_selector_errors(constraint["labelSelector"], f"{at}.labelSelector")
    return errors


def gate_errors(gates: list[Obj], path: str) -> list[FieldError]:
    """Validate scheduling gates: unique qualified names."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        at = f"{path}[{index}]"
        errors += [
            FieldError.invalid(at, name, detail) for detail in names.qualified_name_errors(name)
        ]
        if name in seen:
            errors.append(FieldError.duplicate(at, name))
        seen.add(name)
    return errors
