"""The model families, each a file, and the contract they all satisfy."""
