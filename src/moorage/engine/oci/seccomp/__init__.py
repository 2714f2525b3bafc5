"""Seccomp profiles: the built-in one, those of the node's files, and none."""

from moorage.engine.oci.seccomp.profile import (
    SeccompChoice,
    SeccompProfiles,
    built_in_profile,
    choose_seccomp,
    read_profile,
)

__all__ = [
    "SeccompChoice",
    "SeccompProfiles",
    "built_in_profile",
    "choose_seccomp",
    "read_profile",
]
