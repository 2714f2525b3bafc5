"""Tables of admission webhooks, of admission policies and of their bindings."""

from __future__ import annotations

from typing import Any

from moorage.apiserver.registry.columns.cells import AGE, NAME, age_of, name_of
from moorage.apiserver.registry.kind import Column, Obj, Printer

_UNSET = "<unset>"


def _webhook_cells(configuration: Obj, now: float) -> list[Any]:
    webhooks = len(configuration.get("webhooks", ()))
    return [name_of(configuration), webhooks, age_of(configuration, now)]


WEBHOOKS = Printer(
    columns=(
        NAME,
        Column(
            "Webhooks",
            "integer",
            description="Webhooks indicates the number of webhooks registered in this "
            "configuration",
        ),
        AGE,
    ),
    cells=_webhook_cells,
)


def policy_printer(field: str, column: Column) -> Printer:
    """Return the printer of a policy, whose column counts the items of a field."""

    def cells(policy: Obj, now: float) -> list[Any]:
        spec = policy.get("spec", {})
        param = spec.get("paramKind")
        kind = _UNSET
        if param is not None:
            kind = f"{param.get('apiVersion', '')}/{param.get('kind', '')}"
        return [name_of(policy), len(spec.get(field, ())), kind, age_of(policy, now)]

    description = "ParamKind specifies the kind of resources used to parameterize this policy"
    return Printer(
        columns=(NAME, column, Column("ParamKind", description=description), AGE), cells=cells
    )


def _binding_cells(binding: Obj, now: float) -> list[Any]:
    spec = binding.get("spec", {})
    param = _param_text(spec.get("paramRef", {}))
    return [name_of(binding), spec.get("policyName", ""), param, age_of(binding, now)]


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


POLICY_BINDINGS = Printer(
    columns=(
        NAME,
        Column(
            "PolicyName",
            description="PolicyName indicates the policy definition which the policy binding "
            "binded to",
        ),
        Column(
            "ParamRef",
            description="ParamRef indicates the param resource which sets the configuration param",
        ),
        AGE,
    ),
    cells=_binding_cells,
)
