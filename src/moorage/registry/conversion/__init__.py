"""Between the versions a kind is served in and the one it is stored in.

Each function takes a canonical object of its side and returns the other side's; a round trip loses
nothing.
"""
