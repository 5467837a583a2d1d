"""The verbs: the only place that prints or chooses an exit code."""
