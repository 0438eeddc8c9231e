"""Child processes: started, spoken to, signalled, and always ended.

`child` has what holds for every child, whatever it runs.  `command` is a program that is spoken to
by lines: the nodes of ``cubecast up``, ``chaos`` and ``demo``.  `function` is a Python function
that is spoken to by objects: the benchmarks.  `signals` says how a parent is asked to stop.
"""
