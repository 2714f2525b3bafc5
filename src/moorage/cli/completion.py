"""Completion of names from a running cluster: pods, namespaces, images.

The shell blocks at each tab, so every request has a deadline of 2 s, and a failure completes
nothing: an error would be printed into the line that is being typed. Clients are imported where
they are used: the commands import this module, and most runs of them complete nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from moorage.cli.connection import Target, target_of
from moorage.cli.errors import is_expected

if TYPE_CHECKING:
    from moorage.wire.client.resources import Resource

_DEADLINE_S = 2.0
_POD_PREFIX = "pod/"


def complete_pods(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return completions of `pod/NAME`, and of `NAME` alone once a part of it is typed."""
    del parameter
    namespace = str(ctx.params.get("namespace") or "default")
    return pod_completions(ask(ctx, lambda target: _pod_names(target, namespace)), incomplete)


def pod_completions(names: Sequence[str], incomplete: str) -> list[str]:
    """Return the completions among the names of pods."""
    bare = incomplete.removeprefix(_POD_PREFIX)
    is_bare = bool(incomplete) and not _POD_PREFIX.startswith(incomplete[: len(_POD_PREFIX)])
    prefix = "" if is_bare else _POD_PREFIX
    if is_bare or incomplete.startswith(_POD_PREFIX):
        return [prefix + name for name in names if name.startswith(bare)]
    # `p` may begin the kind or a pod's name.
    return [_POD_PREFIX + name for name in names] + [
        name for name in names if incomplete and name.startswith(incomplete)
    ]


def complete_namespaces(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the namespaces whose names begin with `incomplete`."""
    del parameter
    return [name for name in ask(ctx, _namespace_names) if name.startswith(incomplete)]


def complete_images(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the engine's image names that begin with `incomplete`."""
    del parameter
    return [name for name in ask(ctx, _image_names) if name.startswith(incomplete)]


def ask(
    ctx: click.Context,
    question: Callable[[Target], Awaitable[Iterable[str]]],
    within_s: float = _DEADLINE_S,
) -> list[str]:
    """Return the sorted answer of the cluster that was typed, none if it has none in time."""

    async def answer() -> list[str]:
        async with asyncio.timeout(within_s):
            return sorted(await question(_target(ctx)))

    try:
        with ctx.scope(cleanup=False):
            return asyncio.run(answer())
    except Exception as error:
        if not is_expected(error) and not isinstance(error, TimeoutError):
            raise
        return []


def _target(ctx: click.Context) -> Target:
    """Return the cluster that the options typed so far choose.

    Raises NotRunningError if the directory has none.
    """
    data_dir = typed = ctx.params.get("data_dir")
    is_default = ctx.get_parameter_source("data_dir") is ParameterSource.DEFAULT
    takes_kubeconfig = any(parameter.name == "kubeconfig" for parameter in ctx.command.params)
    if data_dir is None:
        option = next(parameter for parameter in ctx.command.params if parameter.name == "data_dir")
        data_dir = option.get_default(ctx, call=True)
    kubeconfig = ctx.params.get("kubeconfig")
    target = target_of(
        Path(str(kubeconfig)) if kubeconfig else None,
        ctx.params.get("context"),
        Path(str(data_dir)),
        is_directory_given=not takes_kubeconfig or (typed is not None and not is_default),
    )
    if target.cluster is not None:
        _ = target.cluster.settings
    return target


async def _pod_names(target: Target, namespace: str) -> list[str]:
    from moorage.wire.client.resources import PODS

    return await _names(target, PODS, namespace)


async def _namespace_names(target: Target) -> list[str]:
    from moorage.wire.client.resources import NAMESPACES

    return await _names(target, NAMESPACES)


async def _names(
    target: Target, resource: Resource[Any], namespace: str | None = None
) -> list[str]:
    async with target.client("moor-completion") as client:
        return [item.metadata.name for item in (await client.list(resource, namespace)).items]


async def _image_names(target: Target) -> list[str]:
    from moorage.cli.engines import endpoint_of
    from moorage.cluster.images.listing import list_images

    cluster = target.cluster
    if cluster is None:
        return []
    images = await list_images(endpoint_of(cluster, cluster.settings))
    return [name for image in images for name in image.tags or (image.id,)]
