"""The parts of `bench_siege.py`: honest processes, attackers, and the judge of both.

`terms` is what all processes agree on, `witness` what a reader checks, `verdict` what is judged.
`honest`, `churn` and `crowd` use the cluster; `strangers`, `clients`, `outsiders` and `moles`
attack it.
"""
