"""The images a cluster brings along: made from the machine's own programs, no registry needed."""

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
