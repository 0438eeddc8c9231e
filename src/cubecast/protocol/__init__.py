"""The protocols as state machines that own no clock, socket, thread or random source.

A *process* is handed commands, messages and the time; it acts through a *port*.  `port` states
that contract.  `node` is the production protocol, `vcube_ps` the paper's.  Nothing here imports
the rooms around it; `tests/rules/test_purity.py` keeps it so.
"""
