"""PersistentVolumes: bound to claims, made for them, and reclaimed."""

from moorage.controllers.persistentvolumes.controller import PersistentVolumeController
from moorage.controllers.persistentvolumes.provisioner import LocalPathProvisioner

__all__ = ["LocalPathProvisioner", "PersistentVolumeController"]
