"""Programs that tests put on a search path: small shell scripts that stand in for real ones."""

from __future__ import annotations

from pathlib import Path


def write_program(directory: Path, name: str, script: str, interpreter: str = "/bin/sh") -> Path:
    """An executable file of that name."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / name
    program.write_text(f"#!{interpreter}\n{script}\n")
    program.chmod(0o755)
    return program
