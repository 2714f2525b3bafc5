"""Programs that say what tests want, in place of runtimes, and the files that name them."""

from __future__ import annotations

import json
import os
from pathlib import Path

FEATURES = json.dumps(
    {
        "ociVersionMax": "1.2.0",
        "mountOptions": ["rro"],
        "linux": {"namespaces": ["user"], "mountExtensions": {"idmap": {"enabled": True}}},
    }
)


def program(directory: Path, name: str, script: str) -> Path:
    """A shell script, put in place in one step as package managers do."""
    directory.mkdir(exist_ok=True)
    unfinished = directory / f".{name}.new"
    unfinished.write_text(f"#!/bin/sh\n{script}\n")
    unfinished.chmod(0o755)
    os.replace(unfinished, directory / name)
    return directory / name


def runtime(directory: Path, name: str, version: str, *, has_features: bool = True) -> Path:
    """A program that answers as an OCI runtime does."""
    features = f"echo '{FEATURES}'" if has_features else "exit 1"
    return program(
        directory,
        name,
        f"case $1 in features) {features};; *) echo {name} version {version};; esac",
    )


def definition(directory: Path, name: str, binary: str | Path, more: str = "") -> Path:
    """The file of a handler that is driven by an OCI command line."""
    directory.mkdir(exist_ok=True)
    path = directory / f"{name}.toml"
    path.write_text(f'adapter = "oci"\nbinary = "{binary}"\n{more}')
    return path
