"""Schedules against real processes: ``cubecast chaos``.

`driver` starts the processes and carries out a schedule; each process runs `worker`, an
application under load that keeps a trace which survives its death.  `merged_trace` makes one trace
of all of them for the checkers; `recovery` measures the cost of each fault; `story` and `plot`
show it.
"""
