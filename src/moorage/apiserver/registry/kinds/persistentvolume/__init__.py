"""PersistentVolumes. Source: core defaults, validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from moorage.apiserver.registry.declare.defaults import defaults
from moorage.apiserver.registry.defaults.pod_template import round_amounts
from moorage.apiserver.registry.defaults.volume_sources import default_volume_source
from moorage.apiserver.registry.kind import (
    Kind,
    PartRules,
    Served,
    Strategy,
    status_subresource,
)
from moorage.apiserver.registry.kinds.persistentvolume.columns import PRINTER
from moorage.apiserver.registry.kinds.persistentvolume.status import (
    prepare_volume,
    prepare_volume_status,
    stamp_phase,
)
from moorage.apiserver.registry.kinds.persistentvolume.validation import (
    validate_volume,
    validate_volume_update,
)
from moorage.apiserver.registry.kinds.persistentvolume.warnings import warn_volume
from moorage.apiserver.registry.preparation import keep_status

_TYPES = "io.k8s.api.core.v1"


default_volume = defaults(
    ("status.phase", "Pending"),
    ("spec.persistentVolumeReclaimPolicy", "Retain"),
    ("spec.volumeMode", "Filesystem"),
    ("spec.capacity?", round_amounts),
    ("spec", default_volume_source),
)

PERSISTENT_VOLUME = Kind(
    name="PersistentVolume",
    plural="persistentvolumes",
    served=(Served(group="", version="v1", type=f"{_TYPES}.PersistentVolume"),),
    is_namespaced=False,
    short_names=("pv",),
    strategy=Strategy(
        default=default_volume,
        prepare_create=prepare_volume,
        prepare_update=keep_status,
        validate=validate_volume,
        validate_update=validate_volume_update,
        warn=warn_volume,
        parts={"status": PartRules(prepare=prepare_volume_status, stamp=stamp_phase)},
        returns_deleted=True,
    ),
    printer=PRINTER,
    subresources=status_subresource(),
)
