"""PersistentVolumes: bound to claims, made for them, and reclaimed."""

from moorage.controllers.persistentvolumes.controller import PersistentVolumeController

__all__ = ["PersistentVolumeController"]
