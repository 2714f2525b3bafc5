"""Rename table of handlers: from names that no RuntimeClass may have since beta to DNS labels.

The CRD of 1.12 and 1.13 allowed dots, and an engine's tables allow any key. A handler is one name
in classes and engine configurations, so one table is made for everything that is migrated together.
Source: KEP-585 "RuntimeClass", validation of node.k8s.io/v1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from moorage.api.names import dns_label_errors

_SHIM = re.compile(r"io\.containerd\.(?P<name>[a-z0-9-]+)\.v[0-9]+")
_SEPARATORS = re.compile(r"[._\s/:]+")


class RenameError(ValueError):
    """A rename of the user's that cannot be carried out; the message says why."""


class RenameTable(msgspec.Struct, frozen=True):
    """New names of handlers.

    `collisions` has, for each handler whose proposed name another handler gets or has too, the old
    names of all of these.
    """

    new_names: Mapping[str, str] = {}
    collisions: Mapping[str, tuple[str, ...]] = {}

    def new_name(self, handler: str) -> str:
        """Return the name of a handler after the migration. Raises RenameError.

        It has none when two handlers would get the same name, or when no legal name was found.
        """
        if handler in self.collisions:
            names = " and ".join(repr(name) for name in self.collisions[handler])
            raise RenameError(
                f"the handlers {names} would share the name {self.new_names[handler]!r}; give "
                "each a name with --rename OLD=NEW, the same one if they are one handler"
            )
        name = self.new_names.get(handler, handler)
        if errors := dns_label_errors(name):
            raise RenameError(
                f"the handler {handler!r} has no legal name: {errors[0]}; give it one with "
                "--rename OLD=NEW"
            )
        return name

    @property
    def changed(self) -> dict[str, str]:
        """Return the handlers that get another, legal name, sorted by their old one."""
        return {
            old: new
            for old, new in sorted(self.new_names.items())
            if old != new and old not in self.collisions and not dns_label_errors(new)
        }


def propose(handler: str) -> str:
    """Return the proposed name: in lower case, with dashes for dots and the like.

    A containerd runtime type becomes the name of its shim. The proposal may be illegal, such as an
    empty one or one of more than 63 characters.
    """
    if not dns_label_errors(handler):
        return handler
    if match := _SHIM.fullmatch(handler):
        return match["name"]
    return _SEPARATORS.sub("-", handler).strip("-").lower()


def rename_table(handlers: Iterable[str], chosen: Mapping[str, str]) -> RenameTable:
    """Return the table for these handlers, of which the user chose the names of some.

    A chosen name may be one that another handler has: both are the same handler then. Raises
    RenameError for a chosen name that is illegal or is renamed itself.
    """
    for old, new in chosen.items():
        if errors := dns_label_errors(new):
            raise RenameError(f"--rename {old}={new}: {errors[0]}")
        if new in chosen and new != old:
            raise RenameError(f"--rename {old}={new}: {new!r} is renamed too; name the last name")
    new_names = {
        handler: chosen.get(handler) or propose(handler) for handler in handlers if handler
    }
    sharing: dict[str, list[str]] = {}
    for old, new in sorted(new_names.items()):
        sharing.setdefault(new, []).append(old)
    collisions = {
        old: tuple(sharing[new])
        for old, new in new_names.items()
        if old not in (new, *chosen) and len(sharing[new]) > 1
    }
    return RenameTable(new_names, collisions)
