"""Admission policies: validating and mutating policies and their bindings, in CEL.

    validating.py, mutating.py ──▶ selection.py         policies and bindings of a write
                                   ├─▶ matching         rules and selectors
                                   ├─▶ params.py        the objects of parameters of a binding
                                   ├─▶ admission_request  what expressions see of the write
                                   └─▶ cel.Evaluator    the expressions
    mutating.py ──▶ mutation.py ──▶ patched             what mutations make of an object

Source: API docs "Validating Admission Policy", "Mutating Admission Policy"; apiserver
`admission/plugin/policy`.
"""

from moorage.apiserver.admission.policies.mutating import ConfigurationMerge, MutatingPolicies
from moorage.apiserver.admission.policies.sources import CachedParams, CachedPolicies
from moorage.apiserver.admission.policies.validating import Selection, ValidatingPolicies

__all__ = [
    "CachedParams",
    "CachedPolicies",
    "ConfigurationMerge",
    "MutatingPolicies",
    "Selection",
    "ValidatingPolicies",
]
