"""What shall be: profile, options, catalogue, request, memory budget, spec."""
