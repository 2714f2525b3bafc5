"""Engines of others: how a runtime handler is written into their configurations. Pure.

files ──read──▶ configuration ──with_handler, without_handler──▶ changes of files

A `Configuration` finds which handlers the engine has and which of them `moor runtime` wrote, and
returns the changes of files that add, replace or remove one. Each result is parsed again and must
give the handlers of before and the new one, or it is refused.
"""

from moorage.runtimes.installing.engines.containerd import ContainerdConfiguration
from moorage.runtimes.installing.engines.crio import CrioConfiguration
from moorage.runtimes.installing.engines.runtime_tables import (
    Configuration,
    EngineFile,
    FileChange,
    applied,
)

__all__ = [
    "Configuration",
    "ContainerdConfiguration",
    "CrioConfiguration",
    "EngineFile",
    "FileChange",
    "applied",
]
