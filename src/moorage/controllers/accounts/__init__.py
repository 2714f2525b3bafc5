"""Service accounts of namespaces: the default account, the cluster's CA, token secrets."""

from moorage.controllers.accounts.default_account import default_accounts
from moorage.controllers.accounts.root_ca import RootCaController
from moorage.controllers.accounts.token_cleaner import LegacyTokenCleaner
from moorage.controllers.accounts.token_secrets import TokenSecretController

__all__ = [
    "LegacyTokenCleaner",
    "RootCaController",
    "TokenSecretController",
    "default_accounts",
]
