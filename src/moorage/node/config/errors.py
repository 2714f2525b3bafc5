"""Configuration errors: a pod's spec cannot be turned into a CRI configuration."""

from __future__ import annotations


class ConfigError(ValueError):
    """A container or sandbox cannot be configured; the text is shown to the user."""


class MissingError(ConfigError):
    """An object that the configuration refers to does not exist (yet)."""
