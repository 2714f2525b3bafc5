"""Probe programs: what runs inside a probe's container, made by this package without a compiler.

Each is a static executable of a few kilobytes: a small interpreter of machine code, and a table of
system calls that it makes. It prints results by name.
"""

from moorage.runtimes.probing.programs.image import (
    PROBE_IMAGE,
    architectures,
    program_files,
    program_path,
)
from moorage.runtimes.probing.programs.output import ProgramOutput, parse_output

__all__ = [
    "PROBE_IMAGE",
    "ProgramOutput",
    "architectures",
    "parse_output",
    "program_files",
    "program_path",
]
