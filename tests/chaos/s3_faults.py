"""A store on S3 behind a proxy that loses answers, cuts them off, and says 500 and 503."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, urlsplit

from sweep.errors import UserError
from sweep.store import s3
from tests.chaos import loop
from tests.chaos.children import Child, in_child
from tests.chaos.comparison import judge_end, judge_store
from tests.chaos.study import Reference
from tests.chaos.tally import Result

PART = "s3"
KINDS = ("none", "lost", "500", "503", "slow", "mixed")
SHARES = {"slow": 0.012}  # of all requests; each slow one costs a time-out
SHARE = 0.04
READ_SECONDS = 4.0  # the store's own limits, shortened, so that a run meets its faults within a minute
PAUSE_SECONDS = 0.05
RUN_SECONDS = 240.0  # thousands of requests through two servers in Python


def cases(reference: Reference, seed: int) -> Iterator[str]:
    for number in itertools.count():
        yield f"{KINDS[1 + number % (len(KINDS) - 1)]}-{seed * 1000 + number}"


def perform(case: str, reference: Reference) -> Result:
    kind, seed = case.split("-")
    result = Result(PART, case)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        os.environ[name] = "test"
    with (
        _service(reference.folder.parent) as address,
        _proxy(reference.folder.parent, address, kind, int(seed)) as (
            faulty,
            count,
        ),
    ):
        run = partial(_run, reference, _uri(faulty))
        ended = in_child(run, RUN_SECONDS)
        # A service that fails too often may end a run with one message: the next goes on.
        for _ in range(3):
            if ended.code != 2 and not (ended.code == 1 and "StoreUnreachable" in ended.output):
                break
            ended = in_child(run, RUN_SECONDS)
        result.counts["faults"] += int(count.read_text() or 0)
        if judge_end(result, "the run", ended):
            _judge(result, reference, _uri(address))
    return result


def _judge(result: Result, reference: Reference, uri: str) -> None:
    """The service itself is asked, without faults; a busy machine may be too slow for it now and then."""
    for chance in (3, 2, 1):
        try:
            return judge_store(result, reference, uri)
        except s3.StoreUnreachable:
            if chance == 1:
                raise


def _run(reference: Reference, uri: str) -> None:
    s3.READ_SECONDS, s3.PAUSE_SECONDS = READ_SECONDS, PAUSE_SECONDS
    try:
        loop.run(reference.study, uri, reference.folder)
    except UserError as fault:
        print(f"error: {fault}", file=sys.stderr)
        raise SystemExit(2) from None


def _uri(address: str) -> str:
    return f"s3://results/chaos?endpoint_override={quote(address, safe='')}&region=us-east-1"


@contextlib.contextmanager
def _service(folder: Path) -> Iterator[str]:
    """moto's S3 in a process of its own, with an empty bucket."""
    note = folder / f"s3-{os.getpid()}-{time.monotonic_ns()}"

    def serve() -> None:
        import boto3
        from moto.server import ThreadedMotoServer

        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        address = f"http://{host}:{port}"
        boto3.client("s3", endpoint_url=address, region_name="us-east-1").create_bucket(Bucket="results")
        _publish(note, address)
        signal.pause()

    with _serving(serve, note) as address:
        yield address


@contextlib.contextmanager
def _proxy(folder: Path, service: str, kind: str, seed: int) -> Iterator[tuple[str, Path]]:
    """Its address, and the file in which it counts what it spoiled."""
    note = folder / f"proxy-{os.getpid()}-{time.monotonic_ns()}"
    count = note.with_suffix(".count")
    count.write_text("0")

    def serve() -> None:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(service, kind, random.Random(seed), count))
        server.daemon_threads = True
        _publish(note, f"http://127.0.0.1:{server.server_port}")
        server.serve_forever()

    try:
        with _serving(serve, note) as address:
            yield address, count
    finally:
        count.unlink()


@contextlib.contextmanager
def _serving(serve: Callable[[], None], note: Path) -> Iterator[str]:
    def silent() -> None:
        """Nobody reads a log of thousands of requests before the end, and a full pipe would stop the service."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        serve()

    child = Child(silent)
    try:
        end = time.monotonic() + 120
        while not note.exists():
            if time.monotonic() > end:
                raise RuntimeError("a service of the campaign did not start")
            time.sleep(0.05)
        yield note.read_text()
    finally:
        child.kill()
        child.end()
        note.unlink(missing_ok=True)


def _publish(note: Path, address: str) -> None:
    temporary = note.with_suffix(".tmp")
    temporary.write_text(address)
    temporary.replace(note)


def _handler(service: str, kind: str, chance: random.Random, count: Path) -> type[BaseHTTPRequestHandler]:
    target = urlsplit(service).netloc
    spoiled = itertools.count(1)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            fault = kind if kind != "mixed" else chance.choice(KINDS[1:-1])
            if kind == "none" or chance.random() > SHARES.get(fault, SHARE):
                fault = ""
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if fault:
                count.write_text(str(next(spoiled)))
            if fault in ("500", "503"):
                self._answer(int(fault), [], b"")
                return
            if fault == "slow":
                time.sleep(READ_SECONDS + 1)
            connection = http.client.HTTPConnection(target, timeout=60)
            # The host stays the one that the client signed.
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            if fault == "lost":  # carried out, and nobody hears of it
                self.close_connection = True
                return
            self._answer(answer.status, answer.getheaders(), content)

        def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            length = dict((name.lower(), value) for name, value in headers).get("content-length")
            size = length if self.command == "HEAD" and length else str(len(content))
            self.send_header("Content-Length", size)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing: a campaign makes ten thousands of requests."""

    return Handler
