"""Who may connect and do what: the handshake, sealed packets, TLS, permissions, the audit log."""
