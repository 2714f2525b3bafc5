"""PersistentVolumeClaims. Source: core defaults, validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from moorage.apiserver.registry.defaults.volume_claim import default_volume_claim
from moorage.apiserver.registry.kind import Kind, PartRules, Served, Strategy, status_subresource
from moorage.apiserver.registry.kinds.persistentvolumeclaim.columns import PRINTER
from moorage.apiserver.registry.kinds.persistentvolumeclaim.preparation import (
    prepare_claim,
    prepare_update,
)
from moorage.apiserver.registry.kinds.persistentvolumeclaim.status import validate_claim_status
from moorage.apiserver.registry.kinds.persistentvolumeclaim.validation import (
    validate_claim,
    validate_claim_update,
)
from moorage.apiserver.registry.kinds.persistentvolumeclaim.warnings import warn_claim
from moorage.apiserver.registry.preparation import keep_spec

_TYPES = "io.k8s.api.core.v1"

PERSISTENT_VOLUME_CLAIM = Kind(
    name="PersistentVolumeClaim",
    plural="persistentvolumeclaims",
    served=(Served(group="", version="v1", type=f"{_TYPES}.PersistentVolumeClaim"),),
    short_names=("pvc",),
    strategy=Strategy(
        default=default_volume_claim,
        prepare_create=prepare_claim,
        prepare_update=prepare_update,
        validate=validate_claim,
        validate_update=validate_claim_update,
        warn=warn_claim,
        parts={"status": PartRules(prepare=keep_spec, validate=validate_claim_status)},
        returns_deleted=True,
    ),
    printer=PRINTER,
    subresources=status_subresource(),
)
