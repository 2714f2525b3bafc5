"""What several commands have in common."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from moorage.api.quantity import parse as parse_quantity
from moorage.cli.errors import CliError, NotRunningError
from moorage.cluster.layout import SYSTEM_DATA_DIR, Layout
from moorage.cluster.settings import Settings, load
from moorage.cluster.supervisor import running_pid

DATA_DIR_VARIABLE = "MOORAGE_DATA_DIR"
LOG_LEVELS = ("debug", "info", "warning", "error")
_SOCKET_SCHEME = "unix://"
_SOCKET_PATH_BYTES = 107
# Below it are names of pods (namespace, name, uid) and of containers. Source: PATH_MAX, NAME_MAX.
_DATA_DIR_BYTES = 1024
# What only a cluster's directory has. A start reports which of them is lost.
_MARKS = frozenset({"cluster.json", "db", "pki", "store.mark", "supervisor.json"})
# What stands in a cluster's directory before its settings, and on an empty file system.
_BEFORE_SETTINGS = frozenset({"change.lock", "engine", "images", "logs", "lost+found"})


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


def size_bytes(name: str, text: str) -> int:
    """The bytes of a quantity such as `128Gi`, at least one. Raises UsageError."""
    try:
        size = parse_quantity(text).value
    except ValueError as error:
        raise click.UsageError(f"{name}: {text!r} is no quantity such as 128Gi") from error
    if size < 1:
        raise click.UsageError(f"{name}: {text!r} is not more than nothing")
    return size


def socket_path(name: str, endpoint: str) -> Path:
    """The path in an endpoint `unix:///path/to.sock`. Raises UsageError for any other."""
    path = Path(endpoint.removeprefix(_SOCKET_SCHEME))
    if not endpoint.startswith(_SOCKET_SCHEME) or not path.is_absolute():
        raise click.UsageError(f"{name} takes an endpoint of the form unix:///path/to.sock")
    if len(bytes(path)) > _SOCKET_PATH_BYTES:
        raise click.UsageError(f"{name}: a socket's path has at most {_SOCKET_PATH_BYTES} bytes")
    return path


def layout_of(data_dir: Path) -> Layout:
    """Return the paths of the cluster in a directory. Raises CliError for a path that cannot be.

    Links are followed now, since the kernel lists mounts below where they lead.
    """
    try:
        return Layout(data_dir.resolve())
    except (OSError, RuntimeError) as error:
        # RuntimeError: a loop of links.
        why = error.strerror if isinstance(error, OSError) else "its links lead in a circle"
        raise CliError(f"--data-dir {data_dir}: {why}") from error


def new_layout_of(data_dir: Path) -> Layout:
    """Return the paths of the cluster in a directory that has a cluster, or may get one.

    Raises: CliError with what is wrong with the path: something that no cluster can be written to,
    or that holds other things, which `moor down --delete-data` would delete.
    """
    layout = layout_of(data_dir)
    complaint = _complaint(layout.root)
    if complaint:
        raise CliError(f"--data-dir {layout.root}: {complaint}; choose another directory")
    return layout


def _complaint(root: Path) -> str:
    """Return why a directory cannot be a cluster's, empty if it can."""
    if len(bytes(root)) > _DATA_DIR_BYTES:
        return f"the path is longer than {_DATA_DIR_BYTES} bytes, which leaves no room below it"
    if not root.exists():
        return _parent_complaint(next(each for each in root.parents if each.exists()))
    if not os.access(root, os.W_OK | os.X_OK):
        return "it is not writable for this user"
    names = {each.name for each in root.iterdir()}
    if not names & _MARKS and not names <= _BEFORE_SETTINGS:
        return f"it is no cluster's directory and is not empty ({min(names - _BEFORE_SETTINGS)})"
    return ""


def _parent_complaint(parent: Path) -> str:
    if not parent.is_dir():
        return f"{parent} is not a directory"
    if not os.access(parent, os.W_OK | os.X_OK):
        return f"{parent} is not writable for this user"
    return ""


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
