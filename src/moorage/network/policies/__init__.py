"""NetworkPolicies: which connections a pod may open and accept, as rules of its own chains."""
