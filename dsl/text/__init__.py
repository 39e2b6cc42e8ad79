"""YAML text to a tree of nodes with source positions."""
