"""`python -m agym.envs.websites`: the sites, to look at in your own browser.

What is done there stays until this ends, and is shared by all who look.
"""

from __future__ import annotations

import argparse

import uvicorn

from .catalog import HOSTS, SITES
from .hosting import SiteWorld, create_app


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m agym.envs.websites", description="serve the sites to look at")
    parser.add_argument("--port", type=int, default=8080)
    port = parser.parse_args().port
    rules = ", ".join(f"MAP {host} 127.0.0.1:{port}" for host in HOSTS)
    print(f"chromium --host-resolver-rules='{rules}' {' '.join(f'http://{host}' for host in HOSTS)}")
    world = SiteWorld(SITES)
    uvicorn.run(create_app(lambda headers: world), port=port, lifespan="off", ws="none", log_level="warning")


if __name__ == "__main__":
    main()
