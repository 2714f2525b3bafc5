"""Annotations and finalizers of claims and volumes. Source: core/v1, `volume/util`."""

CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
"""Named the storage class of claims and volumes before `storageClassName`."""
MOUNT_OPTIONS_ANNOTATION = "volume.beta.kubernetes.io/mount-options"

CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"
ATTRIBUTES_CLASS_PROTECTION = "kubernetes.io/vac-protection"
