"""Scheduler beside the cluster's own, for pods that name it; not installed by default."""

from __future__ import annotations

from moorage.attach.manifests.identity import (
    FOLLOW,
    SCHEDULER,
    Obj,
    account,
    cluster_role,
    metadata,
    part_name,
    rule,
)
from moorage.attach.manifests.workloads import container, deployment
from moorage.attach.values import Values

NAME = part_name(SCHEDULER)
"""`spec.schedulerName` of its pods, and the name of its objects."""

_UPSTREAMS = ("system:kube-scheduler", "system:volume-scheduler")
"""Roles that every cluster has, with what a scheduler reads and writes."""
_RULES = (rule("node.k8s.io", ["runtimeclasses"], FOLLOW),)
"""What it reads besides."""


def objects(values: Values) -> list[Obj]:
    """Return the objects of the scheduler; none unless it is enabled.

    It takes no lease, so there is one, and the next starts when it has ended.
    """
    if not values.scheduler.enabled:
        return []
    made = [account(values, SCHEDULER), *cluster_role(values, SCHEDULER, _RULES)]
    made += [_binding(values, role) for role in _UPSTREAMS]
    return [*made, _deployment(values)]


def _binding(values: Values, role: str) -> Obj:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata(f"{NAME}-{role.partition(':')[2]}", SCHEDULER),
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": values.namespace}],
    }


def _deployment(values: Values) -> Obj:
    arguments = ["scheduler", "--in-cluster", f"--name={NAME}", f"--log-level={values.log_level}"]
    made = {**container(values, SCHEDULER, values.scheduler.resources), "args": arguments}
    return deployment(values, SCHEDULER, made, replicas=1, strategy={"type": "Recreate"})
