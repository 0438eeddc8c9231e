"""One node of the production protocol, and the agreement on who is in the cluster."""
