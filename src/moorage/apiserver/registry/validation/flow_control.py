"""Flow control validation: the conditions of flow schemas and priority levels.

Source: flowcontrol validation of Kubernetes 1.36.
"""

from __future__ import annotations

from moorage.apiserver.registry.declare.rules import required, unique, update, validator

flow_status_errors = validator(("status.conditions[*].type", unique, required))
"""Validate the conditions of a status: each has a type of its own."""

validate_flow_status = update(flow_status_errors)
