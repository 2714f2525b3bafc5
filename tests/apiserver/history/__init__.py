"""Histories of concurrent requests at an API server, and whether they can be true.

`load` records what clients asked and were answered while the server compacts and is killed;
`checker` says which answers no order of the operations explains. Every write has a value of its
own and every change a revision, so there is one order to check against, and no search for it.
"""
