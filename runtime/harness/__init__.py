"""Agents written elsewhere, in the place of our own: what plays an episode through the endpoint."""
