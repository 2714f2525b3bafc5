"""Detach options, and what a detachment leaves."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class DetachOptions(msgspec.Struct, frozen=True):
    """What is removed. `said` gets a line for each step.

    removes_classes: managed classes go although pods use them. leaves_runtimes: what
    RuntimeInstallations installed stays on the nodes. keeps_definitions: the kinds of our group
    stay, with all objects of them. removes_namespaces: those that an attachment made go although
    others' objects are in them.
    """

    said: Callable[[str], None]
    removes_classes: bool = False
    leaves_runtimes: bool = False
    keeps_definitions: bool = False
    removes_namespaces: bool = False
    timeout_s: float = 300.0


class Leftover(msgspec.Struct, frozen=True):
    """Something that stays, and why."""

    what: str
    why: str
