"""PodDisruptionBudgets. Source: policy validation and strategy of Kubernetes 1.37."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import AGE, NAME, age_of, name_of
from moorage.apiserver.registry.kind import (
    Column,
    Kind,
    Obj,
    PartRules,
    Printer,
    Served,
    Strategy,
    get_spec,
    status_subresource,
)
from moorage.apiserver.registry.preparation import dropping_status, keep_spec, keep_status
from moorage.apiserver.registry.validation.conditions import condition_errors
from moorage.apiserver.registry.validation.go_shapes import Shape, go_struct
from moorage.apiserver.registry.validation.rollout import above_all_errors, amount_errors
from moorage.apiserver.registry.validation.scheduling import label_selector_errors
from moorage.apiserver.registry.validation.workload import NOT_NEGATIVE

_TYPES = "io.k8s.api.policy.v1"
_AMOUNTS = ("minAvailable", "maxUnavailable")
_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_UNHEALTHY_POLICIES = ("AlwaysAllow", "IfHealthyBudget")
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
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in _UNHEALTHY_POLICIES:
        path = "spec.unhealthyPodEvictionPolicy"
        yield FieldError.not_supported(path, policy, _UNHEALTHY_POLICIES)


def validate_budget_status(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of a status."""
    del old
    status = new.get("status", {})
    errors = condition_errors(status.get("conditions", []), "status.conditions")
    return errors + [
        FieldError.invalid(f"status.{field}", status[field], NOT_NEGATIVE)
        for field in _COUNTS
        if status.get(field, 0) < 0
    ]


def _cells(budget: Obj, now: float) -> list[Any]:
    spec = budget.get("spec", {})
    return [
        name_of(budget),
        *(str(spec.get(field, _NO_AMOUNT)) for field in _AMOUNTS),
        budget.get("status", {}).get("disruptionsAllowed", 0),
        age_of(budget, now),
    ]


_PRINTER = Printer(
    columns=(
        NAME,
        Column("Min Available", description="Pods that must stay available"),
        Column("Max Unavailable", description="Pods that may be unavailable"),
        Column("Allowed Disruptions", "integer", description="Pods that may be disrupted now"),
        AGE,
    ),
    cells=_cells,
)

POD_DISRUPTION_BUDGET = Kind(
    name="PodDisruptionBudget",
    plural="poddisruptionbudgets",
    served=(Served(group="policy", version="v1", type=f"{_TYPES}.PodDisruptionBudget"),),
    short_names=("pdb",),
    strategy=Strategy(
        prepare_create=prepare_budget_create,
        prepare_update=prepare_budget_update,
        validate=validate_budget,
        validate_update=validate_budget_update,
        parts={"status": PartRules(keep_spec, validate_budget_status)},
        spec_of=get_spec,
        needs_revision_on_update=True,
    ),
    printer=_PRINTER,
    subresources=status_subresource(),
)
