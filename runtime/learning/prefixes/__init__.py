"""Shared prefixes: sequences as a tree, whose common tokens a row holds once, and attention along its paths."""
