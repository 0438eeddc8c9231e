"""Schedules against real processes: ``cubecast chaos``.

`driver` starts the processes and does to them what a schedule says; each runs `worker`, an
application under load that keeps a trace which survives its death.  `merged_trace` makes one trace
of all of them for the checkers; `recovery` measures what each fault cost; `story` and `plot` tell
it.
"""
