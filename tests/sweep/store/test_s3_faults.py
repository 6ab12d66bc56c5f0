"""A service behind s3:// that is silent, dies, or loses an answer."""

import socket
from types import SimpleNamespace

import pytest

from sweep.errors import UserError
from sweep.store import s3
from sweep.store.opening import open_store


@pytest.fixture
def remote(endpoint, tmp_path):
    return open_store(f"s3://results/{tmp_path.name}?endpoint_override={endpoint}&region=us-east-1")


def spoil(store, faults):
    """Each call is carried out; the next of `faults`, if it is one, is then raised in place of the answer."""
    waiting, session = list(faults), store.client._endpoint.http_session
    send = session.send

    def sent(request):
        answer = send(request)
        fault = waiting.pop(0) if waiting else None
        if fault is not None:
            raise fault
        return answer

    store.client._endpoint.http_session = SimpleNamespace(send=sent, close=session.close)


def test_a_silent_service_is_given_up_with_a_message(monkeypatch, endpoint):
    monkeypatch.setattr(s3, "READ_SECONDS", 0.2)
    monkeypatch.setattr(s3, "RETRY_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the backlog accepts, nobody answers
        with pytest.raises(UserError, match="could not open the bucket: Read timeout"):
            open_store(f"s3://results/x?endpoint_override=http://127.0.0.1:{silent.getsockname()[1]}")


def test_a_created_file_whose_answer_was_lost_is_ours(remote):
    from botocore.exceptions import ConnectionClosedError

    spoil(remote, [ConnectionClosedError(endpoint_url="x")])
    assert remote.create("lease", b"mine") and remote.read("lease") == b"mine"
    assert not remote.create("lease", b"mine")  # without a lost answer it is another's, whatever it says
    spoil(remote, [ConnectionClosedError(endpoint_url="x")])
    assert not remote.create("lease", b"other") and remote.read("lease") == b"mine"


def test_the_message_of_a_dying_service_names_the_first_fault(monkeypatch, remote):
    from botocore.exceptions import ConnectionClosedError, EndpointConnectionError

    monkeypatch.setattr(s3, "TRIES", 2)
    spoil(remote, [ConnectionClosedError(endpoint_url="first"), EndpointConnectionError(endpoint_url="last")])
    with pytest.raises(UserError, match=r'(?s)could not write a: .*"last".*it began with: .*"first"'):
        remote.write("a", b"")


def test_no_call_is_tried_again_beyond_its_time(monkeypatch):
    from botocore.exceptions import ReadTimeoutError

    now, tries, context = 0.0, 1, {"context": {}}
    monkeypatch.setattr(s3, "time", SimpleNamespace(monotonic=lambda: now))
    now = s3.READ_SECONDS
    while (delay := s3._Retries()(None, ReadTimeoutError(endpoint_url="x"), context, tries)) is not None:
        now, tries = now + delay + s3.READ_SECONDS, tries + 1
    assert tries >= 2 and now <= 60


def test_half_a_record_is_set_aside_as_in_a_folder(store):
    from tests.records import trial_record

    record = trial_record()
    store.write(record.path, record.encoded()[:200])
    assert [fault.path for fault in store.broken_records()] == [record.path]
    assert list(store.trial_states().values()) == ["broken"]
    store.set_aside(record.path)
    assert store.trial_states() == {} and store.usable(type(record), record.path) is None
