"""Protection of storage in use: who removes the finalizers that admission adds.

claims.py              claims, until no pod on a node uses them
volumes.py             volumes, until they are bound to no claim
attributes_classes.py  classes of volume attributes, until no claim or volume names them
"""

from moorage.controllers.storage_protection.attributes_classes import (
    AttributesClassProtectionController,
)
from moorage.controllers.storage_protection.claims import ClaimProtectionController
from moorage.controllers.storage_protection.volumes import VolumeProtectionController

__all__ = [
    "AttributesClassProtectionController",
    "ClaimProtectionController",
    "VolumeProtectionController",
]
