"""A real S3 server on the loopback: moto's.

    python s3_server.py PORT

Objects below the folder ``late`` appear late: a client that asks for one just written is told
`TIMES` times that there is none, and listings leave it out as often.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any

BUCKET = "lab"
LATE = "late"
TIMES = 2
PATIENCE_S = 120

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@contextmanager
def s3_server() -> Iterator[int]:
    """The port of a server with one empty bucket."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, __file__, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _make_bucket(port, process)
        yield port
    finally:
        process.kill()
        process.wait()


def _make_bucket(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        try:
            connection.request("PUT", f"/{BUCKET}")
            assert connection.getresponse().status == 200
            return
        except OSError:
            assert process.poll() is None, "the S3 server ended"
            assert time.monotonic() < deadline, "the S3 server does not answer"
            time.sleep(0.05)
        finally:
            connection.close()


def place(port: int, folder: str) -> str:
    """The URI of a folder of the bucket."""
    options = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
    return f"s3://someone:very-secret@{BUCKET}/{folder}?{options}"


class Late:
    """Before a server: hides each object of a folder from the first questions after a write."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._hidden: dict[str, int] = {}
        self._lock = threading.Lock()

    def _is_hidden(self, key: str) -> bool:
        with self._lock:
            left = self._hidden.get(key, 0)
            self._hidden[key] = left - 1
            return left > 0

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        method, key = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if method in ("GET", "HEAD") and self._is_hidden(key):
            start_response("404 Not Found", [("Content-Length", "0")])
            return []
        answer: list[Any] = []
        body = b"".join(self._application(environ, lambda *told: answer.extend(told[:2])))
        if method in ("PUT", "POST") and key.startswith(f"/{BUCKET}/{LATE}/"):
            with self._lock:
                self._hidden[key] = TIMES
        if b"<ListBucketResult" in body:
            body = re.sub(rb"(?s)<Contents>.*?</Contents>", self._unless_hidden, body)
        status, headers = answer
        if method != "HEAD":
            headers = [one for one in headers if one[0].lower() != "content-length"]
            headers.append(("Content-Length", str(len(body))))
        start_response(status, headers)
        return [body]

    def _unless_hidden(self, found: re.Match[bytes]) -> bytes:
        key = re.search(rb"<Key>(.*?)</Key>", found[0])
        assert key is not None
        return b"" if self._is_hidden(f"/{BUCKET}/{key[1].decode()}") else found[0]


def serve(port: int) -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    application: Any = DomainDispatcherApplication(create_backend_app)
    run_simple("127.0.0.1", port, Late(application), threaded=True)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
