"""The viewer's server: whom it answers, with which headers, and how the command starts and ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from agym.viewer.server import HEADERS, STATIC
from starlette.testclient import TestClient

from .served import PORT, TOKEN, client_of, write_run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def client(tmp_path: Path, cache: Path) -> TestClient:
    return client_of(write_run(tmp_path / "door"), cache)


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", f"0.0.0.0:{PORT}", ""]
)
def test_another_host_is_refused(client: TestClient, host: str) -> None:
    assert client.get(f"/{TOKEN}/api/runs", headers={"Host": host}).status_code == 403


def test_both_names_of_this_machine_are_answered(client: TestClient) -> None:
    for host in ("127.0.0.1", "localhost"):
        assert client.get(f"/{TOKEN}/api/runs", headers={"Host": f"{host}:{PORT}"}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/api/runs", "/static/app.js", "/A-TOKEN/", f"/{TOKEN}x/", f"//{TOKEN}/", "/ü/"])
def test_without_the_token_nothing_is_told(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 403


def test_the_page_and_its_files_have_their_types(client: TestClient) -> None:
    page = client.get(f"/{TOKEN}/")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.content == (STATIC / "index.html").read_bytes()
    script = client.get(f"/{TOKEN}/static/app.js")
    assert (script.status_code, script.headers["content-type"]) == (200, "text/javascript; charset=utf-8")


@pytest.mark.parametrize(
    "path",
    [
        "static/../server.py", "static/..%2Fserver.py", "static/%2e%2e/server.py", "static//etc/passwd", "static/",
        "static/.", "static/..", "../", "api/runs/..%2F..", "api/runs/%2e%2e/curves?keys=a", "nothing", "api",
        "api/runs/", "static/app.js%00.html",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_table_of_files(client: TestClient, path: str) -> None:
    # a client tidies `..` away: as it stands, it is written into the request
    url = client.base_url.copy_with(raw_path=f"/{TOKEN}/{path}".encode())
    answered = client.get(url)
    assert answered.status_code in (403, 404)
    assert b"import" not in answered.content


def test_only_reading_is_answered(client: TestClient) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        assert client.request(method, f"/{TOKEN}/api/runs").status_code == 405
    assert client.head(f"/{TOKEN}/api/runs").status_code == 200


@pytest.mark.parametrize("path", [f"/{TOKEN}/", f"/{TOKEN}/static/app.js", f"/{TOKEN}/api/runs", f"/{TOKEN}/x", "/"])
def test_every_answer_has_the_headers(client: TestClient, path: str) -> None:
    answered = client.get(path)
    assert {name: answered.headers[name] for name in HEADERS} == dict(HEADERS)
    assert "'unsafe" not in HEADERS["Content-Security-Policy"]
    assert HEADERS["Cache-Control"] == "no-store"


def test_the_command_prints_its_address_serves_and_ends_quietly_with_ctrl_c(tmp_path: Path) -> None:
    write_run(tmp_path / "door")
    command = [sys.executable, "-P", "-m", "agym", "view", "door", "--no-browser"]
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url, tunnel = process.stdout.readline().strip(), process.stdout.readline()
            found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/[\w-]{40,}/", url)
            assert found is not None
            assert f"ssh -L {found[1]}:127.0.0.1:{found[1]} " in tunnel
            with urllib.request.urlopen(url + "api/runs", timeout=10) as answered:
                assert b'"id":"door"' in answered.read()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (process.returncode, err) == (0, "")
    assert not (tmp_path / "door" / ".cache").exists()


def test_no_engine_is_imported() -> None:
    code = "import sys, agym.viewer.server; print({'torch', 'vllm', 'numpy', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "set()\n"
