"""The vocabulary every part of Moorage shares.

Names, quantities, selectors, times, Status errors and the typed objects of the Kubernetes API.
Nothing here does I/O and nothing here imports another package of Moorage: this is the bottom of
the house.
"""
