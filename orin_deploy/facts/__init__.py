"""What the machine and the model are, read from files and headers."""
