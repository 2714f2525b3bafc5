"""Columns of StatefulSets."""

from __future__ import annotations

from moorage.apiserver.registry.columns.replicas import READY
from moorage.apiserver.registry.declare.columns import AGE, NAME, containers_of, printer

PRINTER = printer(NAME, READY, AGE, *containers_of())
