"""The endpoint on a loopback port, in the event loop of the engine behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn

from ...envs.listener import listen, url_of
from ...envs.serving.slow_clients import TimedHttp
from .endpoint import PolicyEndpoint

__all__ = ["serve_endpoint"]

_STOP_S = 5


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals are the run's own


@asynccontextmanager
async def serve_endpoint(endpoint: PolicyEndpoint, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve within the context; yields the base address."""
    listener = listen(host, port)
    endpoint.url = url_of(listener)
    config = uvicorn.Config(
        endpoint,
        access_log=False,
        log_config=None,
        lifespan="off",
        http=TimedHttp,
        ws="none",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_STOP_S,
        timeout_keep_alive=75,  # longer than clients keep a connection that they do not use
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="policy endpoint")
    try:
        yield endpoint.url
    finally:
        server.should_exit = True
        await task
        listener.close()
