"""API vocabulary shared by all packages of Moorage.

Names, quantities, selectors, times, Status errors and the typed objects of the Kubernetes API.
The modules do no I/O and import no other package of Moorage: this is the bottom layer.
"""
