"""The parts of a deployment: each inspects its state and plans the steps that bring it to the spec."""
