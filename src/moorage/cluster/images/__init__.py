"""Images of a cluster, built from the host's own programs, so that no registry is needed.

`importing.py` is imported by itself: the node agent needs the images without an engine.
"""

from moorage.cluster.images.archive import Image, write_archive
from moorage.cluster.images.building import catalogue
from moorage.cluster.images.catalogue import BUSYBOX, NGINX_STAND_IN, PAUSE, NoPauseError

__all__ = [
    "BUSYBOX",
    "NGINX_STAND_IN",
    "PAUSE",
    "Image",
    "NoPauseError",
    "catalogue",
    "write_archive",
]
