"""`cubecast.sim.workloads.sessions`, compiled: VCube-PS and SRPT-S with changing subscribers.

It is much faster than the objects.

A run of [J] 4.5 sends hundreds of millions of messages: at 10 % churn per second each of a thousand
nodes hears of two hundred changes per second, and acknowledges them.  This package does the same as
`cubecast.protocol.paper.vcube_ps` and `cubecast.baselines.told_tree` in that scenario, as far as it
decides which node receives what and when: views, trees, waves of ACKs and their entries, sending
queues.  It leaves out the order of delivery, that is, causal barriers, which has no influence on
that.  `tests/lab/test_lab_churn.py` compares the two, number by number.

Events of one instant happen in the order in which they were planned, as in `cubecast.sim.world`:
the near future is a ring of lists, the far one a heap, and an event's number says which of two is
first.  Pools (events, entries of ACKs, messages) grow between two events, never within one.
"""

from __future__ import annotations

from cubecast.kernel.churn.run import run_sessions

__all__ = ["run_sessions"]
