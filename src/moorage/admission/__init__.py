"""What stands between a valid request and the store: the chain and its plugins.

Plugins know objects and users, never HTTP. Order is behaviour: `chain.py` has it in one table.
"""
