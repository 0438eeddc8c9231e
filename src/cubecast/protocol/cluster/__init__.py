"""One node of the production protocol, and the agreement on the cluster's members."""
