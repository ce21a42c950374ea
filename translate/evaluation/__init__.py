"""Scores of a model's translations, their confidence, and the report that a run keeps of them."""
