"""All attention of the package: where to look, how well it matches, what comes back."""
