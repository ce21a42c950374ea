"""The program `translate`: one short file a command."""
