"""Trained models at work: text to text, and the folder a model travels in."""
