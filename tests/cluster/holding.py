"""A program that holds a cluster's lock, as its supervisor does."""

from __future__ import annotations

HOLDS = """
import signal, sys
from pathlib import Path
from moorage.cluster.layout import Layout
from moorage.cluster.supervision.supervisor import hold_lock
lock = hold_lock(Layout(Path(sys.argv[1])))
print("held", flush=True)
if sys.argv[2] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("deaf", flush=True)
signal.pause()
signal.pause()
"""
