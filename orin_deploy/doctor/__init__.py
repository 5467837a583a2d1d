"""Rules that read facts, logs and records and name the cause."""
