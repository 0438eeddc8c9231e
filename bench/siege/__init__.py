"""The parts of `bench_siege.py`: honest processes, attackers, and the judge of both.

`terms` are the shared settings, `witness` a reader's checks, `verdict` the judgement.
`honest`, `churn` and `crowd` use the cluster; `strangers`, `clients`, `outsiders` and `moles`
attack it.
"""
