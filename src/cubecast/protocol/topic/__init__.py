"""One topic at one node of the production protocol: streams, acks, recovery, checks."""
