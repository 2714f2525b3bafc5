"""Webhooks of users: HTTPS calls of admission and conversion webhooks.

Whatever a webhook does (hangs, answers without end, redirects), a call ends within its time and
memory, with an error that says why.
"""

from moorage.wire.webhooks.client import CallError, ServiceAuthority, WebhookClient, read_bounded

__all__ = ["CallError", "ServiceAuthority", "WebhookClient", "read_bounded"]
