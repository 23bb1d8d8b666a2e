"""What signals do to a run, without a run."""

import signal

import pytest

from sleuth.training import signals
from sleuth.training.signals import Stop, interrupts_on_sigterm, stop_requests

BOTH = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture(autouse=True)
def handlers():
    before = [signal.getsignal(s) for s in BOTH]
    yield
    assert [signal.getsignal(s) for s in BOTH] == before


def test_sigterm_is_an_interrupt():
    with pytest.raises(KeyboardInterrupt), interrupts_on_sigterm():
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("first", BOTH)
@pytest.mark.parametrize("second", BOTH)
def test_the_first_signal_asks_and_the_second_ends(first, second):
    said = []
    stop = Stop(said.append, "at the end of this batch")
    with stop_requests(stop.request):
        signal.raise_signal(first)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(second)
    assert said == ["stopping at the end of this batch; once more to stop at once"]


def test_what_a_launcher_passes_on_is_the_same_signal(monkeypatch):
    now = 100.0
    monkeypatch.setattr(signals.time, "monotonic", lambda: now)
    stop = Stop()
    with stop_requests(stop.request, processes=2):
        signal.raise_signal(signal.SIGINT)
        now += 1
        signal.raise_signal(signal.SIGTERM)
        assert stop.requested
        now += 3
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
