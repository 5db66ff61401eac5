"""The values that callers get: messages, plans, outcomes and reports, all frozen."""
