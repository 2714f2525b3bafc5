"""Role-based access control: rule resolution, rule matching and rule coverage."""

from moorage.apiserver.registry.rbac.resolver import HeldRule, RuleResolver
from moorage.apiserver.registry.rbac.rules import Action, allows, uncovered

__all__ = ["Action", "HeldRule", "RuleResolver", "allows", "uncovered"]
