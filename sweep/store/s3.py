"""A store at s3://bucket/prefix?endpoint_override=http://host:port&region=… with the guarantees of a folder store.

Every put is atomic. `create` is a conditional put (If-None-Match), so the service decides between writers.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sweep.errors import UserError
from sweep.store.base import Entry, Skip, Store

OPTIONS = ("endpoint_override", "region", "scheme")
READERS = 16
READ_SECONDS = 20.0  # timeout of one request, which is then retried
RETRY_SECONDS = 40.0  # limit after the first fault of a call; with the timeout before it, a minute in total
TRIES = 6
PAUSE_SECONDS = 0.5  # maximum before the second try; doubles with each further one
RETRIED_CODES = ("ConditionalRequestConflict", "RequestTimeout", "RequestTimeTooSkewed", "SlowDown", "Throttling")


class StoreUnreachable(UserError, OSError):
    """An error raised when the service does not respond or refuses a request; it names the bucket and the cause."""


class S3Store(Store):
    def __init__(self, uri: str) -> None:
        parts = urlsplit(uri)
        options = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        unknown = sorted(set(options) - set(OPTIONS))
        if unknown or not parts.netloc:
            wrong = f"unknown option {unknown[0]!r}" if unknown else "no bucket"
            raise UserError(
                f"store {uri}: {wrong}; write s3://bucket/prefix?endpoint_override=http://host:port&region=…"
            )
        self.uri = uri
        self.bucket = parts.netloc
        self.prefix = f"{parts.path.strip('/')}/" if parts.path.strip("/") else ""
        endpoint = options.get("endpoint_override")
        if endpoint and "://" not in endpoint:
            endpoint = f"{options.get('scheme', 'https')}://{endpoint}"
        self.client, self._errors = _connect(endpoint, options.get("region"))
        with self._calling("open the bucket"):
            self.client.head_bucket(Bucket=self.bucket)

    def read(self, path: str) -> bytes:
        with self._calling(f"read {path}"):
            data: bytes = self.client.get_object(Bucket=self.bucket, Key=self._key(path))["Body"].read()
            return data

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        with self._calling(f"write {path}"):
            self.client.put_object(Bucket=self.bucket, Key=self._key(path), Body=data)

    def create(self, path: str, data: bytes) -> bool:
        try:
            with self._calling(f"create {path}"):
                self.client.put_object(Bucket=self.bucket, Key=self._key(path), Body=data, IfNoneMatch="*")
        except FileExistsError as fault:
            # If the response to a successful put was lost, the retry is refused although the file is ours.
            return isinstance(fault, _RefusedAgain) and self._read_if_there(path) == data
        return True

    def exists(self, path: str) -> bool:
        try:
            with self._calling(f"look for {path}"):
                self.client.head_object(Bucket=self.bucket, Key=self._key(path))
        except FileNotFoundError:
            return False
        return True

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        start = self._key(f"{prefix.rstrip('/')}/") if prefix else self.prefix
        with self._calling(f"list {prefix}"):
            for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=start):
                for item in page.get("Contents", ()):
                    path = item["Key"][len(self.prefix) :]
                    yield Entry(path, item["Size"], item["LastModified"].timestamp())

    def delete(self, path: str) -> None:
        with self._calling(f"delete {path}"):
            self.client.delete_object(Bucket=self.bucket, Key=self._key(path))

    def local(self, path: str) -> None:
        return None

    def push_file(self, source: Path, path: str) -> None:
        with self._calling(f"upload {path}"):
            self.client.upload_file(str(source), self.bucket, self._key(path))

    def fetch_file(self, path: str, target: Path) -> None:
        with self._calling(f"download {path}"):
            self.client.download_file(self.bucket, self._key(path), str(target))

    def read_many(self, paths: Iterable[str], skip: Skip | None = None) -> Iterator[tuple[str, bytes]]:
        waiting = iter(paths)
        with ThreadPoolExecutor(READERS) as readers:
            # Read in chunks to keep memory bounded with a hundred thousand records.
            while portion := list(islice(waiting, 20 * READERS)):
                for path, data in zip(portion, readers.map(self._read_if_there, portion), strict=True):
                    if data is not None:
                        yield path, data

    def _read_if_there(self, path: str) -> bytes | None:
        try:
            return self.read(path)
        except FileNotFoundError:
            return None

    def _key(self, path: str) -> str:
        if path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"{path!r} leaves the store")
        return self.prefix + path

    def _calling(self, what: str) -> _Translating:
        return _Translating(self, what)


class _RefusedAgain(FileExistsError):
    """An error raised if the object exists when a call is retried. The previous attempt may have created it."""


class _Retries:
    """A retry rule that replaces botocore's, which limits the number of tries but not the time.

    The first fault of a call is attached to the final error, because a failing service often states the cause only
    at the beginning.
    """

    def __call__(
        self, response: Any, caught_exception: Any, request_dict: dict[str, Any], attempts: int, **_: Any
    ) -> float | None:
        fault = self._fault(response, caught_exception)
        if fault is None:
            return None
        first, since = request_dict["context"].setdefault("first_fault", (fault, time.monotonic()))
        delay = random.uniform(0.5, 1.0) * PAUSE_SECONDS * 2.0 ** (attempts - 1)
        if attempts < TRIES and time.monotonic() + delay + READ_SECONDS <= since + RETRY_SECONDS:
            return delay
        if caught_exception is not None:
            caught_exception.first_fault = first
        else:
            response[1]["FirstFault"] = first
        return None

    def _fault(self, response: Any, caught: Any) -> str | None:
        """Return a fault that is worth a retry, or None for a final answer, including a refusal."""
        from botocore.exceptions import ConnectionError, HTTPClientError

        if caught is not None:
            return str(caught) if isinstance(caught, ConnectionError | HTTPClientError) else None
        status, code = response[0].status_code, response[1].get("Error", {}).get("Code", "")
        if status in (429, 500, 502, 503, 504) or code in RETRIED_CODES:
            return f"{status} {code} {response[1].get('Error', {}).get('Message', '')}".strip()
        return None


class _Translating:
    """A context manager that turns errors of the service into those of a folder store, or into StoreUnreachable."""

    def __init__(self, store: S3Store, what: str) -> None:
        self.store, self.what = store, what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if not isinstance(error, self.store._errors):
            return
        response: dict[str, Any] = getattr(error, "response", None) or {}
        code = response.get("Error", {}).get("Code", "")
        if code in ("NoSuchKey", "404") and "bucket" not in self.what:
            raise FileNotFoundError(f"{self.store.uri}: {self.what}") from None
        if code in ("PreconditionFailed", "412", "ConditionalRequestConflict", "409"):
            again = response.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0
            raise (_RefusedAgain if again else FileExistsError)(f"{self.store.uri}: {self.what}") from None
        if code in ("NoSuchBucket", "404"):
            raise StoreUnreachable(f"store {self.store.uri}: there is no bucket {self.store.bucket!r}") from None
        last = str(error)
        first = _first_fault(error)
        then = f"; it began with: {first}" if first is not None and first not in last else ""
        raise StoreUnreachable(f"store {self.store.uri}: could not {self.what}: {last}{then}") from None


def _first_fault(error: BaseException | None) -> str | None:
    """Return the first fault of a call, searching the chain of errors, or None."""
    while error is not None:
        first = getattr(error, "first_fault", None) or (getattr(error, "response", None) or {}).get("FirstFault")
        if first:
            return str(first)
        error = error.__cause__ or error.__context__
    return None


def _connect(endpoint: str | None, region: str | None) -> tuple[Any, tuple[type[BaseException], ...]]:
    try:
        import boto3
        from boto3.exceptions import Boto3Error
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise UserError("s3:// stores need boto3; install it with: pip install 'robustsweep[cluster]'") from None
    config = Config(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=min(10.0, READ_SECONDS),
        read_timeout=READ_SECONDS,
        max_pool_connections=READERS,
    )
    try:
        client = boto3.client("s3", endpoint_url=endpoint, region_name=region or "us-east-1", config=config)
    except (ValueError, BotoCoreError) as fault:
        raise UserError(f"store endpoint {endpoint!r}: {fault}") from None
    client.meta.events.register("needs-retry.s3", _Retries())
    return client, (ClientError, BotoCoreError, Boto3Error)
