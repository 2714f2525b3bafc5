"""PodDisruptionBudgets. Source: policy validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, PartRules, Served, Strategy, get_spec, status_subresource
from moorage.registry.preparation import drop_status, keep_spec, keep_status

_TYPES = "io.k8s.api.policy.v1"

POD_DISRUPTION_BUDGET = Kind(
    name="PodDisruptionBudget",
    plural="poddisruptionbudgets",
    served=(Served(group="policy", version="v1", type=f"{_TYPES}.PodDisruptionBudget"),),
    short_names=("pdb",),
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        parts={"status": PartRules(prepare=keep_spec)},
        spec_of=get_spec,
        needs_revision_on_update=True,
    ),
    subresources=status_subresource(),
)
