"""The base of clients, as verifiers has it."""

__all__ = ["Client"]


class Client:
    def __init__(self, client):
        self.client = client
