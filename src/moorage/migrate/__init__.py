"""Migration of files and of live clusters to RuntimeClasses; the rules are pure, in `rules`.

Nothing is imported here: the engines' configuration files are read by the same rules.
"""
