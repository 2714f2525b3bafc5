"""Restart policies of containers and their rules."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.rules import changed, complaint

C = "spec.containers[0]"
RULE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}


def rules(*given: dict[str, Any], policy: str | None = "Never") -> dict[str, Any]:
    own = {} if policy is None else {f"{C}.restartPolicy": policy}
    return {f"{C}.restartPolicyRules": list(given), **own}


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        (rules(RULE), None),
        (rules({**RULE, "exitCodes": {"operator": "NotIn", "values": [0]}}), None),
        (rules(RULE, policy=None),
         f"{C}.restartPolicy: Required value: must specify restartPolicy when restart rules are "
         "used"),
        ({f"{C}.restartPolicy": "Sometimes"},
         f'{C}.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "Never", '
         '"OnFailure"'),
        (rules({**RULE, "action": "RestartAllContainers"}),
         f'{C}.restartPolicyRules[0].action: Unsupported value: "RestartAllContainers": supported '
         'values: "Restart"'),
        (rules({"action": "Restart"}),
         f"{C}.restartPolicyRules[0].exitCodes: Required value: must be specified"),
        (rules({**RULE, "exitCodes": {"operator": "Is", "values": [1]}}),
         f'{C}.restartPolicyRules[0].exitCodes.operator: Unsupported value: "Is": supported '
         'values: "In", "NotIn"'),
        (rules(*[RULE] * 21),
         f"{C}.restartPolicyRules: Too many: 21: must have at most 20 items"),
        (rules({**RULE, "exitCodes": {"operator": "In", "values": list(range(256))}}),
         f"{C}.restartPolicyRules[0].exitCodes.values: Too many: 256: must have at most 255 items"),
        ({"spec.initContainers": [{"name": "i", "image": "i", "restartPolicy": "Never",
                                   "restartPolicyRules": [RULE]}]}, None),
        ({"spec.initContainers": [{"name": "i", "image": "i", "restartPolicy": "Always",
                                   "restartPolicyRules": [RULE]}]},
         "spec.initContainers[0].restartPolicyRules: Forbidden: restartPolicyRules are not allowed "
         "for init containers with restart policy Always"),
    ],
)  # fmt: skip
def test_restart_policies(sets: dict[str, Any], says: str | None) -> None:
    error = complaint("Pod", changed("Pod", sets))
    assert (None if error is None else error.partition(" is invalid: ")[2]) == says
