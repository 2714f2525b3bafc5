"""Images of a cluster, built from the host's own programs, so that no registry is needed."""

from moorage.cluster.images.archive import Image, write_archive
from moorage.cluster.images.catalogue import BUSYBOX, NGINX_STAND_IN, PAUSE, NoPauseError
from moorage.cluster.images.importing import catalogue, import_images

__all__ = [
    "BUSYBOX",
    "NGINX_STAND_IN",
    "PAUSE",
    "Image",
    "NoPauseError",
    "catalogue",
    "import_images",
    "write_archive",
]
