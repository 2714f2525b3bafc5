"""PodDisruptionBudgets. Source: policy validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.rules import (
    each_field,
    not_negative,
    one_of,
    update,
    validator,
)
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    get_spec,
    status_subresource,
)
from moorage.apiserver.registry.preparation import dropping_status, keep_spec, keep_status
from moorage.apiserver.registry.validation.conditions import condition_errors
from moorage.apiserver.registry.validation.go_shapes import Shape, go_struct
from moorage.apiserver.registry.validation.scheduling import label_selector_errors
from moorage.apiserver.registry.validation.workload import above_all_errors, amount_errors

_TYPES = "io.k8s.api.policy.v1"
_AMOUNTS = ("minAvailable", "maxUnavailable")
_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_policy_errors = one_of("AlwaysAllow", "IfHealthyBudget")
_NO_AMOUNT = "N/A"

# This label set a selector of nothing apart from one of everything in policy/v1beta1.
_BETA_LABEL = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"
_SELECTS_NOTHING = {"matchExpressions": [{"key": _BETA_LABEL, "operator": "Exists"}]}

_BOTH_SET = "minAvailable and maxUnavailable cannot be both set"
_SPEC: Shape = (
    ("minAvailable", "MinAvailable", None),
    ("selector", "Selector", None),
    ("maxUnavailable", "MaxUnavailable", None),
    ("unhealthyPodEvictionPolicy", "UnhealthyPodEvictionPolicy", None),
)

_reset_status = dropping_status(*_COUNTS)


def prepare_budget_create(budget: Obj) -> None:
    """Reset the status and remove a requirement that only policy/v1beta1 needed."""
    _reset_status(budget)
    _drop_beta_requirements(budget["spec"].get("selector"))


def prepare_budget_update(new: Obj, old: Obj) -> None:
    """Keep the status; a new selector loses a requirement that only policy/v1beta1 needed."""
    keep_status(new, old)
    selector = new["spec"].get("selector")
    if selector != old["spec"].get("selector"):
        _drop_beta_requirements(selector)


def _drop_beta_requirements(selector: Obj | None) -> None:
    if not selector or selector == _SELECTS_NOTHING:
        return
    kept = [one for one in selector.get("matchExpressions", ()) if one.get("key") != _BETA_LABEL]
    if kept:
        selector["matchExpressions"] = kept
    else:
        selector.pop("matchExpressions", None)


def validate_budget(budget: Obj) -> list[FieldError]:
    """Return the errors of a new PodDisruptionBudget."""
    return list(_spec_errors(budget["spec"]))


def validate_budget_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update, whose selector may have values that the old one had wrong."""
    before = old["spec"].get("selector")
    has_wrong_values = before is not None and any(
        ".values[" in error.field for error in label_selector_errors(before, "")
    )
    return [
        error
        for error in _spec_errors(new["spec"])
        if not (has_wrong_values and ".values[" in error.field)
    ]


def _spec_errors(spec: Obj) -> Iterator[FieldError]:
    if all(field in spec for field in _AMOUNTS):
        yield FieldError.invalid("spec", go_struct(spec, _SPEC), _BOTH_SET)
    for field in _AMOUNTS:
        if field in spec:
            yield from amount_errors(spec[field], f"spec.{field}")
            yield from above_all_errors(spec[field], f"spec.{field}")
    if "selector" in spec:
        yield from label_selector_errors(spec["selector"], "spec.selector")
    if (policy := spec.get("unhealthyPodEvictionPolicy")) is not None:
        yield from _policy_errors(policy, "spec.unhealthyPodEvictionPolicy")


_validate_status = validator(
    ("status.conditions", condition_errors), *each_field("status", _COUNTS, not_negative)
)

POD_DISRUPTION_BUDGET = Kind(
    name="PodDisruptionBudget",
    plural="poddisruptionbudgets",
    served=(Served("policy", "v1", f"{_TYPES}.PodDisruptionBudget"),),
    short_names=("pdb",),
    strategy=Strategy(
        prepare_create=prepare_budget_create,
        prepare_update=prepare_budget_update,
        validate=validate_budget,
        validate_update=validate_budget_update,
        parts={"status": PartRules(keep_spec, update(_validate_status))},
        spec_of=get_spec,
        needs_revision_on_update=True,
    ),
    printer=printer(
        NAME,
        column(
            "Min Available",
            "spec.minAvailable",
            absent=_NO_AMOUNT,
            show=str,
            description="Pods that must stay available",
        ),
        column(
            "Max Unavailable",
            "spec.maxUnavailable",
            absent=_NO_AMOUNT,
            show=str,
            description="Pods that may be unavailable",
        ),
        column(
            "Allowed Disruptions",
            "status.disruptionsAllowed",
            "integer",
            description="Pods that may be disrupted now",
        ),
        AGE,
    ),
    subresources=status_subresource(),
)
