"""OCI specs: from the CRI's configuration to a runtime's `config.json`.

    findings = await asyncio.to_thread(look_up_container, config, handler, host, CdiDirectories())
    identity = await asyncio.to_thread(resolve_identity, security_context, image.user, rootfs)
    document = SpecWriter(host).container(ContainerRequest(...), findings)

`look_up_…` and `resolve_identity` read the host and the root file system; everything else is pure.
An invalid configuration raises `InvalidError` with the field and the remedy.
"""

from moorage.engine.oci.capabilities import container_capabilities
from moorage.engine.oci.cdi import CdiDirectories
from moorage.engine.oci.context import (
    BUILT_IN_SECCOMP,
    UNCONFINED_SECCOMP,
    ContainerRequest,
    Document,
    HandlerTraits,
    HostFacts,
    ImageDefaults,
    Rlimit,
    SandboxContext,
    SandboxFiles,
    SandboxRequest,
    look_at_host,
)
from moorage.engine.oci.findings import Findings, look_up_container, look_up_sandbox
from moorage.engine.oci.identity import Identity, resolve_identity
from moorage.engine.oci.mounts import KERNEL_TREES, POD_FILES, absolute
from moorage.engine.oci.namespaces import (
    UserNamespace,
    id_mappings,
    user_namespace,
    verify_sandbox_namespaces,
)
from moorage.engine.oci.process import exec_process
from moorage.engine.oci.resources import oom_score, resources_of
from moorage.engine.oci.sysctls import Sysctl, sandbox_sysctls, sysctl
from moorage.engine.oci.writer import OCI_VERSION, SpecWriter

__all__ = [
    "BUILT_IN_SECCOMP",
    "KERNEL_TREES",
    "OCI_VERSION",
    "POD_FILES",
    "UNCONFINED_SECCOMP",
    "CdiDirectories",
    "ContainerRequest",
    "Document",
    "Findings",
    "HandlerTraits",
    "HostFacts",
    "Identity",
    "ImageDefaults",
    "Rlimit",
    "SandboxContext",
    "SandboxFiles",
    "SandboxRequest",
    "SpecWriter",
    "Sysctl",
    "UserNamespace",
    "absolute",
    "container_capabilities",
    "exec_process",
    "id_mappings",
    "look_at_host",
    "look_up_container",
    "look_up_sandbox",
    "oom_score",
    "resolve_identity",
    "resources_of",
    "sandbox_sysctls",
    "sysctl",
    "user_namespace",
    "verify_sandbox_namespaces",
]
