"""Engine in use: the one that may have pods of the cluster, recorded from `up` until `down`.

The settings name the wanted engine; pods that were left running are on the earlier one. No pod may
run on two engines, so the engine can change only after `moor down`.
"""

from __future__ import annotations

from moorage.cluster.access.private_files import write_private
from moorage.cluster.layout import Layout
from moorage.cluster.settings import Settings, SettingsError

_NONE = "none"
_OWN = "own"


def engine_in_use(layout: Layout, settings: Settings) -> str | None:
    """Return the endpoint of the engine that may have pods, "" for our own, None for no engine.

    Without a record (a cluster of an earlier version) the engine of the settings may have pods if
    the node has pod directories.
    """
    try:
        text = layout.engine_in_use.read_text().strip()
    except FileNotFoundError:
        pods = layout.node / "pods"
        has_pods = pods.is_dir() and any(pods.iterdir())
        return settings.cri if has_pods else None
    if text == _NONE:
        return None
    return "" if text == _OWN else text


def note_engine(layout: Layout, endpoint: str | None) -> None:
    """Record the engine that `engine_in_use` is to return. Raises OSError."""
    text = _NONE if endpoint is None else endpoint or _OWN
    write_private(layout.engine_in_use, f"{text}\n".encode())


def check_engine_change(layout: Layout, present: Settings, chosen: Settings) -> None:
    """Raise SettingsError if pods may be on another engine than the chosen one."""
    used = engine_in_use(layout, present)
    if not chosen.has_node or used is None or used == chosen.cri:
        return
    option = f"--cri {chosen.cri}" if chosen.cri else "--own-engine"
    raise SettingsError(
        f"pods of this cluster may still run on {_described(used)}, so it cannot go over to "
        f"{_described(chosen.cri)} yet: end them with `moor down`, then start them there with "
        f"`moor up {option}`"
    )


def _described(endpoint: str) -> str:
    return f"the engine at {endpoint}" if endpoint else "its own engine"
