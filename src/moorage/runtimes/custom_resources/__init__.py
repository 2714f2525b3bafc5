"""Custom resources of the group runtime.moorage.dev: their definitions, and their installation.

The same definitions serve `moor up` and any other Kubernetes. One YAML file for each kind.
"""

from moorage.runtimes.custom_resources.definitions import definitions
from moorage.runtimes.custom_resources.installation import install_definitions, wait_installed

__all__ = ["definitions", "install_definitions", "wait_installed"]
