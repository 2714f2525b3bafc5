"""Authentication: client certificates, bearer tokens, service account tokens, impersonation."""

from moorage.apiserver.authentication.authenticator import Authenticator
from moorage.apiserver.authentication.service_accounts import TokenSigner, TokenVerifier

__all__ = ["Authenticator", "TokenSigner", "TokenVerifier"]
