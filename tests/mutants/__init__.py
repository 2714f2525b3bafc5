"""Mutation sampling: puts one random fault at a time into a copy of the code, and reports which
faults the tests do not notice. `make mutants` runs it; docs/decisions/043-mutation-sampling.md says
why it is a program of our own.
"""
