"""Bootstrap tokens: expired ones are deleted, the others sign the cluster's configuration."""

from moorage.controllers.bootstraptokens.cleaner import token_cleaner
from moorage.controllers.bootstraptokens.signer import bootstrap_signer

__all__ = ["bootstrap_signer", "token_cleaner"]
