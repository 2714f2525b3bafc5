"""Role-based access control: rule resolution, rule matching and rule coverage."""

from moorage.registry.rbac.resolver import HeldRule, RuleResolver
from moorage.registry.rbac.rules import Action, allows, uncovered

__all__ = ["Action", "HeldRule", "RuleResolver", "allows", "uncovered"]
