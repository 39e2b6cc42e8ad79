"""Clients of environments: in this process, over HTTP, of other systems."""
