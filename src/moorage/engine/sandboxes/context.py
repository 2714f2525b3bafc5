"""A sandbox as the specs of its containers need it."""

from __future__ import annotations

import os

from moorage.cri import pb
from moorage.engine.inventory import Sandbox
from moorage.engine.oci import SandboxContext, user_namespace
from moorage.engine.paths import EnginePaths
from moorage.engine.sandboxes.files import files_of
from moorage.linux import pinned
from moorage.linux.idmap import IdMappings, IdRange


def sandbox_context(paths: EnginePaths, sandbox: Sandbox) -> SandboxContext:
    """The namespaces and files of a sandbox, as far as they are pinned."""
    options = sandbox.namespace_options
    directory = paths.namespaces / sandbox.id
    has_network = options.network != pb.NODE
    return SandboxContext(
        id=sandbox.id,
        config=sandbox.config,
        hostname=sandbox.config.hostname if has_network else os.uname().nodename,
        netns=str(directory / pinned.NET) if has_network else "",
        utsns=str(directory / pinned.UTS) if has_network else "",
        userns=str(directory / pinned.USER) if user_namespace(options) is not None else "",
        ipcns=str(directory / pinned.IPC) if options.ipc != pb.NODE else "",
        holder_pid=sandbox.record.task_pid or None,
        files=files_of(paths.sandbox_files(sandbox.id), sandbox.config),
    )


def id_mappings(options: pb.NamespaceOption) -> IdMappings | None:
    """Who the pod's users and groups are outside; None without a user namespace of its own."""
    if user_namespace(options) is None:
        return None
    asked = options.userns_options
    return IdMappings(
        tuple(IdRange(each.container_id, each.host_id, each.length) for each in asked.uids),
        tuple(IdRange(each.container_id, each.host_id, each.length) for each in asked.gids),
    )


def is_holding_processes(config: pb.PodSandboxConfig) -> bool:
    """Whether the pod's containers share a process namespace, which needs a process."""
    return bool(config.linux.security_context.namespace_options.pid == pb.POD)
