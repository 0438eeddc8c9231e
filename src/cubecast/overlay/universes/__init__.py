"""Synthetic universes: subscriptions as flat arrays, with numpy and without Spark.

A universe is ``(topics, offsets, members)``, three arrays of 64-bit integers: the subscribers of
``topics[i]`` are ``members[offsets[i]:offsets[i + 1]]``, sorted, none twice.  Topics are sorted.
A topic without subscribers is left out: a table of pairs could not hold it either.

The subscribers of a topic depend on the run, the topic and the parameters, and on nothing else: not
on the range of topics that is asked for.  So Spark's tasks each generate some of the topics.
"""
