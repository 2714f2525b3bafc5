"""Ingresses. Source: networking validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from moorage.apiserver.registry.kind import (
    Kind,
    PartRules,
    Served,
    Strategy,
    get_spec,
    status_subresource,
)
from moorage.apiserver.registry.kinds.ingress.columns import PRINTER
from moorage.apiserver.registry.kinds.ingress.status import validate_ingress_status
from moorage.apiserver.registry.kinds.ingress.validation import (
    validate_ingress,
    validate_ingress_update,
    warn_about_ingress,
)
from moorage.apiserver.registry.preparation import drop_status, keep_spec, keep_status

_TYPES = "io.k8s.api.networking.v1"

INGRESS = Kind(
    name="Ingress",
    plural="ingresses",
    served=(Served(group="networking.k8s.io", version="v1", type=f"{_TYPES}.Ingress"),),
    short_names=("ing",),
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        validate=validate_ingress,
        validate_update=validate_ingress_update,
        warn=warn_about_ingress,
        parts={"status": PartRules(prepare=keep_spec, validate=validate_ingress_status)},
        spec_of=get_spec,
    ),
    printer=PRINTER,
    subresources=status_subresource(),
)
