"""Options shared by several commands, and the cluster that `--data-dir` names."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from moorage.api.durations import parse_duration
from moorage.api.quantity import parse as parse_quantity
from moorage.cli.errors import CliError
from moorage.cli.factory import factory
from moorage.cluster.layout import SYSTEM_DATA_DIR

if TYPE_CHECKING:
    from moorage.cluster import Cluster

DATA_DIR_VARIABLE = "MOORAGE_DATA_DIR"
LOG_LEVELS = ("debug", "info", "warning", "error")
_SOCKET_SCHEME = "unix://"
_SOCKET_PATH_BYTES = 107


def default_data_dir(euid: int, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the data directory of a user for whom no option and no variable names one."""
    if euid == 0:
        return SYSTEM_DATA_DIR
    base = environment.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "moorage"


def _default_data_dir() -> Path:
    return default_data_dir(factory().euid())


data_dir_option: Callable[..., Any] = click.option(
    "--data-dir",
    "data_dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=_default_data_dir,
    envvar=DATA_DIR_VARIABLE,
    show_default=str(SYSTEM_DATA_DIR) + ", or ~/.local/share/moorage without root",
    help="The cluster's data directory.",
)


mirror_option: Callable[..., Any] = click.option(
    "--registry-mirror",
    "mirrors",
    multiple=True,
    metavar="REGISTRY=URL",
    help="Mirror to pull a registry's images from.",
)


class OutputFile(click.Path):
    """Path of a file that a command writes at its end; refused at once if it cannot be written."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, dir_okay=False, writable=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path. Fails with UsageError."""
        path = super().convert(value, param, ctx)
        assert isinstance(path, Path)
        if not path.parent.is_dir():
            self.fail(f"directory {path.parent} does not exist", param, ctx)
        if not os.access(path.parent, os.W_OK):
            self.fail(f"directory {path.parent} is not writable", param, ctx)
        return path


class Seconds(click.FloatRange):
    """Seconds: a number, or a duration as kubectl and Helm take it, such as `90s` or `2m30s`."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds. Fails with UsageError."""
        if isinstance(value, str):
            try:
                value = _seconds(value)
            except ValueError:
                self.fail(
                    f"{value!r} is neither a number of seconds nor a duration such as 90s or 5m",
                    param,
                    ctx,
                )
        seconds = super().convert(value, param, ctx)
        assert isinstance(seconds, float)
        if not math.isfinite(seconds):
            # Of which nothing could be said by comparing it with a limit, or that has no end.
            self.fail(f"{seconds} is no time", param, ctx)
        return seconds


def _seconds(text: str) -> float:
    """Return the seconds of a number or a duration. Raises ValueError for another text."""
    try:
        return float(text)
    except ValueError:
        return parse_duration(text).total_seconds()


def pairs(name: str, texts: tuple[str, ...]) -> dict[str, str]:
    """Return the values of a repeatable KEY=VALUE option by key. Raises UsageError."""
    values = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key or not value:
            raise click.UsageError(f"{name} takes KEY=VALUE, not {text!r}")
        values[key] = value
    return values


def size_bytes(name: str, text: str) -> int:
    """Return a quantity such as `128Gi` in bytes. Raises UsageError if invalid or below 1."""
    try:
        size = parse_quantity(text).value
    except ValueError as error:
        raise click.UsageError(f"{name}: {text!r} is not a quantity such as 128Gi") from error
    if size < 1:
        raise click.UsageError(f"{name}: {text!r} must be greater than zero")
    return size


def socket_path(name: str, endpoint: str) -> Path:
    """Return the path of an endpoint `unix:///path/to.sock`.

    Raises UsageError for any other endpoint, or a path longer than 107 bytes.
    """
    path = Path(endpoint.removeprefix(_SOCKET_SCHEME))
    if not endpoint.startswith(_SOCKET_SCHEME) or not path.is_absolute():
        raise click.UsageError(f"{name} takes an endpoint of the form unix:///path/to.sock")
    if len(bytes(path)) > _SOCKET_PATH_BYTES:
        raise click.UsageError(f"{name}: a socket's path has at most {_SOCKET_PATH_BYTES} bytes")
    return path


def cluster_of(data_dir: Path) -> Cluster:
    """Return the cluster of a data directory, which need not exist.

    Raises CliError for a path that cannot be resolved.
    """
    try:
        return factory().cluster(data_dir)
    except (OSError, RuntimeError) as error:
        # RuntimeError: a loop of symbolic links.
        why = error.strerror if isinstance(error, OSError) else "it has a loop of symbolic links"
        raise CliError(f"--data-dir {data_dir}: {why}") from error
