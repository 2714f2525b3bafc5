"""Rollouts in the terminal: a few lines that are drawn again with each change."""

from __future__ import annotations

import shutil
import sys
from datetime import datetime
from typing import Any

import click
import msgspec

from moorage.api.clock import parse_time
from moorage.api.durations import format_duration
from moorage.api.runtime_rollouts import ACCEPTED, BLOCKED, RuntimeRollout
from moorage.api.text import counted, printable
from moorage.cli.output import dim, has_colour

_BAR = 30
_SHOWN = 8
_COLOURS = {
    "Completed": "green", "Progressing": "cyan", "Stopped": "red", "Blocked": "red",
    "RollingBack": "yellow", "RolledBack": "yellow", "Paused": "yellow",
}  # fmt: skip
_ATTENTION = ("Reverted", "Failed", "Moving", "Held", "Unmovable")


def row_of(rollout: RuntimeRollout) -> dict[str, Any]:
    """Return a rollout as a row of `moor rollout list`."""
    counts = rollout.status.counts
    return {
        "name": rollout.metadata.name,
        "from": rollout.spec.from_,
        "to": rollout.spec.to,
        "phase": rollout.status.phase or "Pending",
        "wave": rollout.status.wave,
        "moved": f"{counts.moved + counts.held}/{counts.total}",
        "failed": counts.failed,
        "created": rollout.metadata.creation_timestamp,
    }


def document_of(rollout: RuntimeRollout) -> dict[str, Any]:
    """Return all of a rollout, for programs."""
    document: dict[str, Any] = msgspec.to_builtins(rollout)
    return document


def lines_of(rollout: RuntimeRollout, now: datetime) -> list[str]:
    """Return the lines that show how far a rollout is."""
    status, counts = rollout.status, rollout.status.counts
    phase = status.phase or "Pending"
    head = f"{rollout.spec.from_} → {rollout.spec.to}   {_coloured(phase)}"
    if status.wave:
        head += f"   wave {status.wave} (up to {counted(status.wave_size, 'workload')})"
    if status.started_at is not None:
        until = parse_time(status.completed_at) if status.completed_at else now
        head += f"   {format_duration((until - parse_time(status.started_at)).seconds)}"
    lines = [head, f"{_bar(rollout)} {_numbers(rollout)}"]
    reason = _reason(rollout)
    if reason:
        lines.append(printable(reason))
    listed = [one for one in status.workloads if one.state in _ATTENTION]
    for one in listed[:_SHOWN]:
        message = f"  {printable(one.message)}" if one.message else ""
        lines.append(f"  {one.state:<9} {one.kind} {one.namespace}/{one.name}{dim(message)}")
    hidden = (
        counts.reverted + counts.failed + counts.moving + counts.held + counts.unmovable
    ) - min(len(listed), _SHOWN)
    if hidden > 0:
        lines.append(dim(f"  and {hidden} more"))
    return lines


def _bar(rollout: RuntimeRollout) -> str:
    counts = rollout.status.counts
    total = counts.total or 1
    full = _BAR * (counts.moved + counts.held) // total
    busy = -(-_BAR * (counts.moving + counts.failed) // total)
    busy = min(busy, _BAR - full)
    return f"[{'#' * full}{'>' * busy}{'.' * (_BAR - full - busy)}]"


def _numbers(rollout: RuntimeRollout) -> str:
    counts = rollout.status.counts
    parts = [f"{counts.moved + counts.held}/{counts.total} moved"]
    for name in ("moving", "pending", "failed", "reverted", "held", "unmovable"):
        number = getattr(counts, name)
        if number:
            parts.append(f"{number} {name}")
    return " · ".join(parts)


def _reason(rollout: RuntimeRollout) -> str:
    status = rollout.status
    if status.stop is not None:
        return status.stop.message
    if status.phase == BLOCKED:
        return next(one.message for one in status.conditions if one.type == ACCEPTED)
    return ""


def _coloured(phase: str) -> str:
    return click.style(phase, fg=_COLOURS.get(phase)) if has_colour() else phase


class LiveView:
    """Draws lines in place of the previous ones on a terminal; elsewhere, one line a change."""

    def __init__(self) -> None:
        self._drawn = 0
        self._last = ""
        self._is_terminal = sys.stdout.isatty()

    def draw(self, rollout: RuntimeRollout, now: datetime) -> None:
        """Show a rollout as it is now."""
        if not self._is_terminal:
            line = f"{rollout.status.phase or 'Pending'}: {_numbers(rollout)}"
            reason = _reason(rollout)
            line += f": {reason}" if reason else ""
            if line != self._last:
                click.echo(printable(line))
                self._last = line
            return
        lines = lines_of(rollout, now)
        if self._drawn:
            click.echo(f"\x1b[{self._drawn}F\x1b[J", nl=False)
        click.echo("\n".join(lines))
        self._drawn = _height(lines)


def _height(lines: list[str]) -> int:
    """Return how many rows of the terminal lines take, which wrap at its width."""
    columns = max(1, shutil.get_terminal_size().columns)
    return sum(max(1, -(-len(click.unstyle(line)) // columns)) for line in lines)
