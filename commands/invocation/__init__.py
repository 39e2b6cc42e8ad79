"""Shared by the commands: streams, a compiled recipe, the process of the engines."""
