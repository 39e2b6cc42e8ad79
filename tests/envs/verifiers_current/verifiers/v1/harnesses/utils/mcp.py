"""Tools of a harness: here a URL is the name of the one tool of a server, which doubles a number."""

__all__ = ["call_mcp", "connect_mcp"]


async def connect_mcp(config, stack):
    servers = config["mcpServers"]
    schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
    tools = [
        {"type": "function", "function": {"name": f"{name}_double", "description": "Doubles.", "parameters": schema}}
        for name in servers
    ]
    return tools, {tool["function"]["name"]: None for tool in tools}, servers


async def call_mcp(servers, dispatch, name, arguments):
    return str(2 * arguments["number"])
