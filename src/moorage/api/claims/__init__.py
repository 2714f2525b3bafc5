"""Claims on storage: which volume a claim may have, and where that volume can be used.

    annotations.py   names that controller, scheduler and provisioners agree on
    classes.py       storage classes of claims and volumes
    matching.py      which volume fits a claim best
    finalizers.py    what keeps claims and volumes while they are in use
    topology.py      on which nodes a volume, or a class's volumes, can be used
    pod_claims.py    the claims of a pod
    binding.py       the writes that bind a volume to a claim
    local_path.py    the volumes that Moorage itself provisions

Pure rules for the controller that binds, the scheduler that binds late, and the node agent that
mounts. Source: component-helpers `storage/volume` of Kubernetes 1.36.
"""

from moorage.api.claims.binding import (
    best_match,
    binding_patch,
    has_access_modes,
    is_bound_to,
    is_claim_bound,
    mismatch,
    modes_differ,
)
from moorage.api.claims.classes import (
    class_of_claim,
    class_of_volume,
    default_class,
    is_delayed,
    is_reachable,
    matches_topologies,
    zone_conflicts,
)
from moorage.api.claims.pod_claims import PodClaim, pod_claims

__all__ = [
    "PodClaim",
    "best_match",
    "binding_patch",
    "class_of_claim",
    "class_of_volume",
    "default_class",
    "has_access_modes",
    "is_bound_to",
    "is_claim_bound",
    "is_delayed",
    "is_reachable",
    "matches_topologies",
    "mismatch",
    "modes_differ",
    "pod_claims",
    "zone_conflicts",
]
