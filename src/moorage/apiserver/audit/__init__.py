"""Audit log: who did what, at the levels that a policy file gives, as JSON lines in a file."""

from moorage.apiserver.audit.events import AuditedRequest, AuditEvents, audit_families
from moorage.apiserver.audit.log_file import AuditLog, FileLimits
from moorage.apiserver.audit.objects import RecordedObjects
from moorage.apiserver.audit.policy import AuditPolicy, PolicyError, load_policy

__all__ = [
    "AuditEvents",
    "AuditLog",
    "AuditPolicy",
    "AuditedRequest",
    "FileLimits",
    "PolicyError",
    "RecordedObjects",
    "audit_families",
    "load_policy",
]
