"""What several commands have in common."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from moorage.cli.errors import NotRunningError
from moorage.cluster.layout import SYSTEM_DATA_DIR, Layout
from moorage.cluster.settings import Settings, load
from moorage.cluster.supervisor import running_pid

DATA_DIR_VARIABLE = "MOORAGE_DATA_DIR"
LOG_LEVELS = ("debug", "info", "warning", "error")
_SOCKET_SCHEME = "unix://"
_SOCKET_PATH_BYTES = 107


def _default_data_dir() -> Path:
    if os.geteuid() == 0:
        return SYSTEM_DATA_DIR
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "moorage"


data_dir_option: Callable[..., Any] = click.option(
    "--data-dir",
    "data_dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=_default_data_dir,
    envvar=DATA_DIR_VARIABLE,
    show_default=str(SYSTEM_DATA_DIR) + ", or ~/.local/share/moorage without root",
    help="Where the cluster keeps everything.",
)


mirror_option: Callable[..., Any] = click.option(
    "--registry-mirror",
    "mirrors",
    multiple=True,
    metavar="REGISTRY=URL",
    help="Pull a registry's images from there.",
)


def pairs(name: str, texts: tuple[str, ...]) -> dict[str, str]:
    """The values of an option that takes KEY=VALUE, several times. Raises UsageError."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key or not value:
            raise click.UsageError(f"{name} takes KEY=VALUE, not {text!r}")
        found[key] = value
    return found


def socket_path(name: str, endpoint: str) -> Path:
    """The path in an endpoint `unix:///path/to.sock`. Raises UsageError for any other."""
    path = Path(endpoint.removeprefix(_SOCKET_SCHEME))
    if not endpoint.startswith(_SOCKET_SCHEME) or not path.is_absolute():
        raise click.UsageError(f"{name} takes an endpoint of the form unix:///path/to.sock")
    if len(bytes(path)) > _SOCKET_PATH_BYTES:
        raise click.UsageError(f"{name}: a socket's path has at most {_SOCKET_PATH_BYTES} bytes")
    return path


def layout_of(data_dir: Path) -> Layout:
    """The paths of the cluster in a folder.

    Links are followed now, since the kernel lists mounts below where they lead.
    """
    return Layout(data_dir.resolve())


def present_settings(layout: Layout) -> Settings:
    """The settings of an existing cluster. Raises NotRunningError when there is none."""
    settings = load(layout.settings)
    if settings is None:
        raise NotRunningError(f"there is no cluster in {layout.root}; `moor up` makes one")
    return settings


def running_settings(layout: Layout) -> Settings:
    """The settings of a running cluster. Raises NotRunningError."""
    settings = present_settings(layout)
    if running_pid(layout) is None:
        raise NotRunningError(f"the cluster in {layout.root} is not running; `moor up` resumes it")
    return settings
