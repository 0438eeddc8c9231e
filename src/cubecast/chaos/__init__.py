"""Real processes under a schedule of faults: ``cubecast chaos`` and what it is made of.

`driver` starts the processes and does to them what a `schedule` says; each runs `worker`, an
application under load that keeps a trace which survives its death.  `lives` makes one trace of all
of them for the checkers; `recovery` measures what each fault cost; `story` and `plot` tell it.
"""
