"""RuntimeProfiles: what a runtime handler of a node was found to support, by running it.

One object for each node and handler, cluster-scoped, named NODE.HANDLER: a handler has no dots, so
the last part is the handler. Node and handler are in the specification, which never changes; what
was found is the status.
"""

from __future__ import annotations

from moorage.api.meta import Condition, Object, ObjectMeta

WORKING = "Working"
"""Condition of a profile: whether a probe sandbox of the handler ran."""

SUPPORTED = "Supported"
UNSUPPORTED = "Unsupported"
UNKNOWN = "Unknown"


def profile_name(node: str, handler: str) -> str:
    """Return the name of the profile of a node's handler."""
    return f"{node}.{handler}"


def node_of_profile(name: str) -> str:
    """Return the node in a profile's name; empty for another name."""
    return name.rpartition(".")[0]


class ProfileFeature(Object, frozen=True):
    """A feature of the vocabulary in `moorage.runtimeclass.features`, and what its probe found.

    `state` is Supported, Unsupported or Unknown; `message` is the evidence, one line.
    """

    name: str = ""
    state: str = UNKNOWN
    message: str = ""


class RuntimeProgram(Object, frozen=True):
    """The program behind a handler: what is known of it, as text; `digest` is `sha256:HEX`."""

    name: str = ""
    version: str = ""
    path: str = ""
    digest: str = ""


class RuntimeProfileSpec(Object, frozen=True):
    node_name: str = ""
    handler: str = ""


class RuntimeProfileStatus(Object, frozen=True):
    """`kernel` is the version that a container sees, `host_kernel` the node's.

    `isolation` is a level of `moorage.runtimeclass.isolation`; empty while unknown. `same_as` is
    the handler of the node that this one is under a second name; empty for one of its own.
    """

    engine: str = ""
    program: RuntimeProgram | None = None
    same_as: str = ""
    kernel: str = ""
    host_kernel: str = ""
    isolation: str = ""
    probed_at: str | None = None
    features: tuple[ProfileFeature, ...] = ()
    conditions: tuple[Condition, ...] = ()


class RuntimeProfile(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: RuntimeProfileSpec = RuntimeProfileSpec()
    status: RuntimeProfileStatus = RuntimeProfileStatus()
