"""What an application reads: subscriptions, their queues and credit, callbacks, patterns."""
