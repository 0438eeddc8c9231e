"""What several test files share: small worlds, broken versions, servers, workers, helpers.

A test imports it as `support.x`; no test file imports another one.
"""
