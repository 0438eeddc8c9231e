"""Authentication and permissions: the handshake, sealed packets, TLS, rules, the audit log."""
