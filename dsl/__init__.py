"""Text in, Plan out. Pure: no torch, no network, no clock."""
