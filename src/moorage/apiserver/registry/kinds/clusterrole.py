"""ClusterRoles. Source: rbac validation of Kubernetes 1.36."""

from __future__ import annotations

from functools import partial

from moorage.api import names
from moorage.apiserver.registry.columns.cells import CREATED_AT
from moorage.apiserver.registry.declare.rules import required_as, update, validator
from moorage.apiserver.registry.kind import Kind, Served, Strategy
from moorage.apiserver.registry.validation.rbac import rule_errors
from moorage.apiserver.registry.validation.scheduling import label_selector_errors

_NO_SELECTOR = "at least one clusterRoleSelector required if aggregationRule is non-nil"

validate_cluster_role = validator(
    ("rules[*]", partial(rule_errors, is_namespaced=False)),
    ("aggregationRule?.clusterRoleSelectors", required_as(_NO_SELECTOR)),
    ("aggregationRule.clusterRoleSelectors[*]", label_selector_errors),
)

CLUSTER_ROLE = Kind(
    name="ClusterRole",
    plural="clusterroles",
    served=(
        Served(
            group="rbac.authorization.k8s.io", version="v1", type="io.k8s.api.rbac.v1.ClusterRole"
        ),
    ),
    is_namespaced=False,
    strategy=Strategy(
        validate=validate_cluster_role,
        validate_update=update(validate_cluster_role),
        name_errors=names.path_segment_errors,
        may_create_on_update=True,
    ),
    printer=CREATED_AT,
)
