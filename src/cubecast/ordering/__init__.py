"""Total notification order across topics, on top of any topic-based event service ([T]).

Two subscribers that share topics see the events of those topics in the same order, or an event is
tagged as out of order.  The room has two modes with one door: `cubecast.ordering.faithful` is the
paper as printed.
"""
