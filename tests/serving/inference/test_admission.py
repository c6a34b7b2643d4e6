"""Counting what is in flight."""

from __future__ import annotations

from serving.limits import Admission
from tests.refusals import refused


def test_requests_are_counted_in_and_out() -> None:
    admission = Admission(2, 100)
    with admission.admit(), admission.admit():
        with refused("overloaded") as caught, admission.admit():
            pass
        assert int(caught.value.headers["Retry-After"]) > 0
    with admission.admit():
        pass


def test_bytes_are_counted_over_all_requests_and_given_back() -> None:
    admission = Admission(9, 100)
    with admission.admit() as first, admission.admit() as second:
        first.hold(60)
        with refused("overloaded", match="60 bytes"):
            second.hold(41)
        second.hold(40)
    with admission.admit() as third:
        third.hold(100)


def test_a_failing_request_gives_back_what_it_held() -> None:
    admission = Admission(1, 100)
    for _ in range(3):
        with refused("overloaded"), admission.admit() as ticket:
            ticket.hold(101)
    assert admission.bytes == 0
