"""Seccomp profiles: the built-in one, those of the node's files, and none."""

from moorage.engine.oci.seccomp.choice import SeccompChoice, choose_seccomp
from moorage.engine.oci.seccomp.files import read_profile
from moorage.engine.oci.seccomp.profile import SeccompProfiles, built_in_profile

__all__ = [
    "SeccompChoice",
    "SeccompProfiles",
    "built_in_profile",
    "choose_seccomp",
    "read_profile",
]
