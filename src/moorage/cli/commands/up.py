"""Command `moor up`: starts the cluster, or resumes it."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import click

from moorage.api.containers import (
    NEVER_VERIFY_ALLOWLISTED,
    NEVER_VERIFY_PRELOADED,
    POLICIES,
)
from moorage.cli.errors import CliError
from moorage.cli.factory import Factory, factory
from moorage.cli.interruption import interruptible
from moorage.cli.options import (
    LOG_LEVELS,
    cluster_of,
    data_dir_option,
    mirror_option,
    pairs,
    size_bytes,
    socket_path,
)
from moorage.cluster import AlreadyRunningError, Choices, Cluster, Settings
from moorage.cluster.access import kubeconfig
from moorage.cluster.settings import CONTROLLERS, DEFAULT_POD_PIDS_LIMIT, NODE, RUNTIMES, SCHEDULER
from moorage.cluster.supervision.supervise import moor_command, usage
from moorage.cluster.supervision.supervisor import COMPLETE

_OPTIONAL_PARTS = (SCHEDULER, CONTROLLERS, NODE, RUNTIMES)


def _gates(texts: tuple[str, ...]) -> dict[str, bool]:
    booleans = {"true": True, "false": False}
    gates = {}
    for key, value in pairs("--feature-gate", texts).items():
        if key != "RuntimeClass" or value.lower() not in booleans:
            raise click.UsageError(
                f"--feature-gate {key}={value}: the gate is RuntimeClass, its value true or false"
            )
        gates[key] = booleans[value.lower()]
    return gates


def _absolute(path: str | None) -> str | None:
    """Return a path that holds in other directories too; empty and None stay."""
    return str(Path(path).absolute()) if path else path


def _parts(node: bool | None, without: str | None) -> tuple[bool | None, tuple[str, ...] | None]:
    """Return whether a node is asked for, and the parts that are left out.

    Raises UsageError for a part that does not exist, and for `--node --without node`.
    """
    if without is None:
        return node, None
    left_out = [part.strip() for part in without.split(",")]
    for part in left_out:
        if part not in _OPTIONAL_PARTS:
            raise click.UsageError(f"--without {part}: the parts are {', '.join(_OPTIONAL_PARTS)}")
    if NODE in left_out:
        if node:
            raise click.UsageError("--node and --without node exclude each other")
        node = False
    return node, tuple(part for part in _OPTIONAL_PARTS if part in left_out)


def _allowlist(policy: str | None, patterns: tuple[str, ...]) -> tuple[str, ...] | None:
    """Check and return the allowlist, None if neither it nor a policy was given.

    Raises UsageError for a pattern that is invalid or does not fit the policy.
    """
    if policy is None and not patterns:
        return None
    # Imported here: the node agent is large, and few starts need it.
    from moorage.node.images.verification import AllowlistError, Verification

    try:
        Verification(policy or NEVER_VERIFY_PRELOADED, patterns).check()
    except AllowlistError as error:
        raise click.UsageError(str(error)) from error
    return patterns


@click.command("up")
@data_dir_option
@click.option("--detach", "-d", is_flag=True, help="Return when the cluster is ready.")
@click.option("--merge", is_flag=True, help=f"Add the cluster to {Factory().users_kubeconfig} too.")
@click.option("--install", is_flag=True, help="Install missing Debian packages first.")
@click.option(
    "--node/--no-node",
    "node",
    default=None,
    help="Run a node, or the control plane alone, which needs no root.",
)
@click.option(
    "--without",
    metavar="PART[,PART…]",
    help="Leave parts to other programs: scheduler, controllers, node. Their kubeconfigs are "
    "DATA_DIR/PART.kubeconfig. `runtimes` leaves out all that Kubernetes lacks, for `moor attach`.",
)
@click.option("--cri", metavar="ENDPOINT", help="Use a running engine: unix:///path/to.sock.")
@click.option("--own-engine", is_flag=True, help="Use the cluster's own engine again, after --cri.")
@click.option("--name", help="The cluster's name in the kubeconfig.")
@click.option("--node-name", help="The node's name; the host's by default.")
@click.option("--api-port", type=click.IntRange(1, 65535), help="The API's port; 6443 if free.")
@click.option("--node-port", type=click.IntRange(1, 65535), help="The node agent's port.")
@click.option("--pod-network", metavar="CIDR", help="The pods' addresses; a free /24 by default.")
@click.option("--service-network", metavar="CIDR", help="The services' addresses.")
@mirror_option
@click.option(
    "--feature-gate",
    "gates",
    multiple=True,
    metavar="NAME=BOOL",
    help="Turn a feature off or on: RuntimeClass.",
)
@click.option(
    "--schedule-by-handler/--scheduler-like-upstream",
    "by_handler",
    default=None,
    help="Keep pods off nodes that lack their handler, or let them fail there as Kubernetes does.",
)
@click.option(
    "--default-classes/--no-default-classes",
    "default_classes",
    default=None,
    help="Create a RuntimeClass for each handler that works, once; on by default.",
)
@click.option(
    "--seccomp-default/--no-seccomp-default",
    "seccomp_default",
    default=None,
    help="Run containers that name no seccomp profile under RuntimeDefault instead of Unconfined.",
)
@click.option(
    "--pod-pids-limit",
    type=click.IntRange(min=-1),
    metavar="N",
    help=f"Processes and threads a pod may have; -1 for no limit, {DEFAULT_POD_PIDS_LIMIT} by "
    "default.",
)
@click.option(
    "--accept-loss",
    "accepts_loss",
    is_flag=True,
    help="Start although the database, a key or the settings are gone or older than recorded.",
)
@click.option(
    "--image-verification",
    type=click.Choice(POLICIES),
    help="When a pod must show that it may pull an image that is on the node; "
    f"{NEVER_VERIFY_PRELOADED} by default.",
)
@click.option(
    "--image-allowlist",
    "allowlist",
    multiple=True,
    metavar="REPOSITORY",
    help=f"An image, or PREFIX/*, for every pod with {NEVER_VERIFY_ALLOWLISTED}; repeatable.",
)
@click.option(
    "--image-limit",
    metavar="QUANTITY",
    help="Maximum unpacked size of an image in the cluster's own engine; 128Gi by default.",
)
@click.option(
    "--audit-policy",
    metavar="FILE",
    help="Record requests in DATA_DIR/logs/audit.log as this audit.k8s.io/v1 Policy says; '' for "
    "none.",
)
@click.option(
    "--kubelet-config",
    "kubelet_configuration",
    metavar="FILE",
    help="A KubeletConfiguration for the node agent: eviction, static pods, graceful shutdown; '' "
    "for the defaults.",
)
@click.option(
    "--admission-control-config-file",
    "admission_configuration",
    metavar="FILE",
    help="AdmissionConfiguration of the plugins PodSecurity and ResourceQuota; '' for none.",
)
@click.option("--log-level", type=click.Choice(LOG_LEVELS), help="Log level of all parts.")
def command(
    data_dir: Path,
    *,
    detach: bool,
    merge: bool,
    install: bool,
    node: bool | None,
    without: str | None,
    cri: str | None,
    own_engine: bool,
    mirrors: tuple[str, ...],
    gates: tuple[str, ...],
    by_handler: bool | None,
    image_limit: str | None,
    accepts_loss: bool,
    image_verification: str | None,
    allowlist: tuple[str, ...],
    audit_policy: str | None,
    admission_configuration: str | None,
    kubelet_configuration: str | None,
    **settings: str | int | bool | None,
) -> None:
    """Start the cluster, or resume the one in the data directory with everything that is in it.

    Stays in the foreground until Ctrl-C, which leaves pods running for the next `moor up`;
    `moor down` ends them too. Does nothing where the cluster runs already.
    """
    if cri is not None:
        socket_path("--cri", cri)
        if own_engine:
            raise click.UsageError("--cri and --own-engine exclude each other")
    elif own_engine:
        cri = ""
    has_node, left_out = _parts(node, without)
    cluster = cluster_of(data_dir)
    cluster.check_directory()
    cluster.choices = Choices(
        cri=cri,
        has_node=has_node,
        without=left_out,
        filters_by_handler=by_handler,
        accepts_loss=accepts_loss,
        gates=_gates(gates),
        registry_mirrors=pairs("--registry-mirror", mirrors),
        image_limit_bytes=None if image_limit is None else size_bytes("--image-limit", image_limit),
        image_verification=image_verification,
        image_allowlist=_allowlist(image_verification, allowlist),
        audit_policy=_absolute(audit_policy),
        admission_configuration=_absolute(admission_configuration),
        kubelet_configuration=_absolute(kubelet_configuration),
        **settings,  # type: ignore[arg-type]
    )
    present, pid = cluster.find_settings(), cluster.pid
    if pid is not None and present is not None:
        _report_running(cluster, present, pid, is_merging=merge)
        return
    checking = cluster.check_host(is_installing=install, report=partial(click.echo, err=True))
    check = asyncio.run(checking)
    if check.warning:
        click.echo(f"moor: {check.warning}", err=True)
    # Imported at use: it speaks to engines, and many clusters have no node.
    from moorage.cli.handlers import host_warnings

    for warning in host_warnings(cluster.layout, check.handlers):
        click.echo(f"moor: warning: {warning}", err=True)
    created = cluster.create()
    if merge:
        kubeconfig.merge(factory().users_kubeconfig, cluster.access)
    merged_into = str(factory().users_kubeconfig) if merge else ""
    if not detach:
        cluster.run_in_foreground(merged_into)
        return
    with interruptible() as interruptions:
        interruptions.run(cluster.start())
    click.echo(COMPLETE)
    click.echo(usage(cluster.layout, created, merged_into))


def _option(name: str) -> str:
    """Return the option that sets a field of Choices."""
    options = {
        "has_node": "--node",
        "gates": "--feature-gate",
        "registry_mirrors": "--registry-mirror",
        "filters_by_handler": "--schedule-by-handler",
        "image_limit_bytes": "--image-limit",
    }
    return options.get(name, f"--{name.replace('_', '-')}")


def _report_running(cluster: Cluster, present: Settings, pid: int, *, is_merging: bool) -> None:
    """Print that the cluster runs already. Raises CliError if the choices differ from its own."""
    choices = cluster.choices.given()
    changes = [name for name, value in choices.items() if getattr(present, name) != value]
    if changes:
        raise CliError(
            f"{AlreadyRunningError(cluster.layout, pid)}. It runs with a different "
            f"{', '.join(map(_option, changes))}, and options take effect at start: "
            f"stop it with {moor_command(cluster.layout, 'down --keep-pods')} first"
        )
    if is_merging:
        kubeconfig.merge(factory().users_kubeconfig, cluster.access)
    waiting = [part.part for part in cluster.parts if part.state != "ready"]
    state = f"; not ready yet: {', '.join(waiting)}" if waiting else ""
    node = "" if present.has_node else " without a node"
    click.echo(
        f"the cluster in {cluster.directory} runs already{node} (supervisor process {pid}){state}"
    )
    click.echo(
        usage(cluster.layout, present, str(factory().users_kubeconfig) if is_merging else "")
    )
