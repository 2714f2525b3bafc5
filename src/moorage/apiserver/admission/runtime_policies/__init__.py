"""Runtime policies: which classes pods get and may use, and how many of each.

    facts.py       what is known, as the API server's copy (sources.py) or informers have it
    sources.py ──▶ plugin.py        choice of the class, floor, allow-list, checks
               ├─▶ placing.py       node affinity and gates, in the webhook alone
               ├─▶ writes.py        policies that cannot be understood are refused
               └─▶ class_quotas.py  RuntimeClassQuotas

`sources` and `class_quotas` are imported by the API server alone: they know its store, which the
webhook does without. `moorage.runtimeclass` decides; the objects are custom resources of the group
runtime.moorage.dev.
"""

from moorage.apiserver.admission.runtime_policies.placing import PlacingByHandlerAdmission
from moorage.apiserver.admission.runtime_policies.plugin import (
    RuntimePolicyAdmission,
    RuntimePolicyWrites,
)
from moorage.apiserver.admission.runtime_policies.sources import (
    Facts,
    NamespaceFacts,
    NamespaceRules,
    rules_of,
)

__all__ = [
    "Facts",
    "NamespaceFacts",
    "NamespaceRules",
    "PlacingByHandlerAdmission",
    "RuntimePolicyAdmission",
    "RuntimePolicyWrites",
    "rules_of",
]
