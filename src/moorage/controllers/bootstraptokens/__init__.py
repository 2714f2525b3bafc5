"""Bootstrap tokens: expired ones are deleted, the others sign the cluster's configuration."""

from moorage.controllers.bootstraptokens.cleaner import token_cleaner
from moorage.controllers.bootstraptokens.signer import BootstrapSigner

__all__ = ["BootstrapSigner", "token_cleaner"]
