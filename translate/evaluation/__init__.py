"""How good a model is: scores, where they come from, and what is kept of them."""
