"""The parts of `bench_attacks.py`: honest processes that measure, attacks, and the table.

`bystander` is an honest process, `scene` what an attack sees, `trial` one attack measured.
`outside`, `inside` and `operating` hold the attacks, `table` prints the results.
"""
