"""Faults on purpose: one language of schedules, carried out in two worlds.

`schedule` is the language, read and written as TOML.  `drawing` and `eventful` draw schedules from
seeds; `condition` says which nodes are down and which links are cut as a schedule goes on; `plan`
gives the same as spans of time; `verdict` is the outcome of a run.  `simulated` carries schedules
out in virtual time (``cubecast sim chaos``), `live` against real processes (``cubecast chaos``).
"""
