"""What a pod asks that cannot be turned into a configuration."""

from __future__ import annotations


class ConfigError(ValueError):
    """A container or sandbox that cannot be configured; the text is shown to the user."""


class MissingError(ConfigError):
    """Something the configuration refers to is not there (yet)."""
