"""Messages of OpenAI's chat; here they are mappings already."""

__all__ = ["message_to_wire"]


def message_to_wire(message):
    return message
