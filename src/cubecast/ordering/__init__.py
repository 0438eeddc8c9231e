"""Total notification order across topics, on top of any topic-based event service ([T]).

Two subscribers that share topics see the events of those topics in the same order, or an event is
tagged as out of order.  There are two modes with one interface, `step`:
`cubecast.ordering.faithful` is the paper as printed, `cubecast.ordering.production` closes its
holes.
"""
