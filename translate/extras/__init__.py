"""The porch: occasional things, imported by the tables of names that name them."""
