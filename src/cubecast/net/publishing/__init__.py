"""What an application publishes: publications on their way to the protocol, and receipts."""
