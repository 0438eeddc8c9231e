"""Child processes: started, spoken to, signalled, and always ended.

`child` has what holds for every child, whatever it runs.  `command` runs a program and exchanges
lines with it: the nodes of ``cubecast up``, ``chaos`` and ``demo``.  `function` runs a Python
function and exchanges objects with it: the benchmarks.  `signals` asks a parent to stop.
"""
