"""YAML text to a tree of nodes that know where they stand."""
