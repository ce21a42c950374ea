"""Training: the loss, the optimizer, what surrounds the steps, and the run as a whole."""
