"""Plan, apply, record, verify."""
