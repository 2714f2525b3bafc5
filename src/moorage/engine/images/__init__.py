"""Image store: pulls by skopeo, layers unpacked once, root filesystems and image volumes
mounted.
"""

from moorage.engine.images.credentials import Credentials
from moorage.engine.images.image import Image, ImageConfiguration
from moorage.engine.images.limits import ImageLimits
from moorage.engine.images.manifest import Platform
from moorage.engine.images.service import ImageServicer
from moorage.engine.images.store import NATIVE, OVERLAYFS, ImagePaths, ImageStore
from moorage.engine.images.usage import FilesystemUsage, StoreUsage

__all__ = [
    "NATIVE",
    "OVERLAYFS",
    "Credentials",
    "FilesystemUsage",
    "Image",
    "ImageConfiguration",
    "ImageLimits",
    "ImagePaths",
    "ImageServicer",
    "ImageStore",
    "Platform",
    "StoreUsage",
]
