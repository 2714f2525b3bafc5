"""Tables of admission webhooks, of admission policies and of their bindings."""

from __future__ import annotations

from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.kind import Obj, Printer

_UNSET = "<unset>"
_PARAM_KIND = "ParamKind specifies the kind of resources used to parameterize this policy"


WEBHOOKS = printer(
    NAME,
    column(
        "Webhooks",
        "webhooks",
        "integer",
        show=len,
        description="Webhooks indicates the number of webhooks registered in this configuration",
    ),
    AGE,
)


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
