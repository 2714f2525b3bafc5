"""Restart policies of containers, and the rules by which exit codes override them.

The action RestartAllContainers (KEP-5532) is refused: no agent here carries it out. Source:
KEP-5307; core validation `validateContainerRestartPolicy` of Kubernetes 1.36.
"""

from __future__ import annotations

from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj

RESTART_POLICIES = ("Always", "Never", "OnFailure")
_OPERATORS = ("In", "NotIn")
_ACTIONS = ("Restart",)
_MAX_RULES = 20
_MAX_EXIT_CODES = 255


def restart_policy_errors(container: Obj, path: str) -> list[FieldError]:
    """Return the errors of a main container's restart policy and of its rules."""
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules", [])
    errors: list[FieldError] = []
    if policy is None and rules:
        why = "must specify restartPolicy when restart rules are used"
        errors.append(FieldError.required(f"{path}.restartPolicy", why))
    elif policy is not None and policy not in RESTART_POLICIES:
        errors.append(FieldError.not_supported(f"{path}.restartPolicy", policy, RESTART_POLICIES))
    path = f"{path}.restartPolicyRules"
    if len(rules) > _MAX_RULES:
        errors.append(FieldError.too_many(path, len(rules), _MAX_RULES))
    for index, rule in enumerate(rules):
        errors += _rule_errors(rule, f"{path}[{index}]")
    return errors


def init_restart_policy_errors(container: Obj, path: str) -> list[FieldError]:
    """Return the errors of an init container's restart policy; a sidecar has no rules."""
    if container.get("restartPolicy") != "Always" or not container.get("restartPolicyRules"):
        return restart_policy_errors(container, path)
    why = "restartPolicyRules are not allowed for init containers with restart policy Always"
    return [FieldError.forbidden(f"{path}.restartPolicyRules", why)]


def _rule_errors(rule: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    action = rule.get("action", "")
    if action not in _ACTIONS:
        errors.append(FieldError.not_supported(f"{path}.action", action, _ACTIONS))
    codes = rule.get("exitCodes")
    if codes is None:
        errors.append(FieldError.required(f"{path}.exitCodes", "must be specified"))
        return errors
    operator, values = codes.get("operator", ""), codes.get("values", [])
    if operator not in _OPERATORS:
        errors.append(FieldError.not_supported(f"{path}.exitCodes.operator", operator, _OPERATORS))
    if len(values) > _MAX_EXIT_CODES:
        errors.append(FieldError.too_many(f"{path}.exitCodes.values", len(values), _MAX_EXIT_CODES))
    return errors
