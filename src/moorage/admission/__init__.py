"""What stands between a valid request and the store: the chain and its plugins.

Plugins know objects and users, never HTTP. Order is behaviour: whoever builds the chain
gives the plugins in the order they run (`apiserver.assembly`).
"""
