"""Admission policies: ValidatingAdmissionPolicies and their bindings, in CEL.

    plugin.py ──▶ matching             which policies and bindings a write is subject to
              ├─▶ params.py            the objects of parameters of a binding
              ├─▶ admission_request    what expressions see of the write
              └─▶ cel.Evaluator        the expressions

Source: API docs "Validating Admission Policy"; apiserver `admission/plugin/policy`.
"""

from moorage.admission.policies.plugin import ValidatingPolicies

__all__ = ["ValidatingPolicies"]
