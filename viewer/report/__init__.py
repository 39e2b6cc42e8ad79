"""Runs on one page that opens from disk: curves, evaluations, recipes, events and some episodes. Needs no server."""
