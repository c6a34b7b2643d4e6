"""Counting what is in flight."""

from __future__ import annotations

from serving.limits import Admission, Ticket
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
            ticket.hold(60)
            admission.count(40, "")
            try:
                ticket.hold(1)
            finally:
                admission.count(-40, "")
    assert admission.bytes == 0


def test_a_request_that_never_fits_is_too_large_and_not_to_be_repeated() -> None:
    admission = Admission(1, 100)
    with refused("body-too-large", match="101 bytes of memory, of at most 100") as caught, admission.admit() as ticket:
        ticket.hold(60)
        ticket.hold(41)
    assert "Retry-After" not in caught.value.headers
    assert admission.bytes == 0


def test_one_key_has_half_of_the_requests_and_its_end_gives_them_back() -> None:
    admission = Admission(4, 100)
    with admission.admit("a"), admission.admit("a"):
        with refused("overloaded", match='2 requests of the key "a"'), admission.admit("a"):
            pass
        with admission.admit("b"), admission.admit("b"):
            assert admission.requests == 4
    with admission.admit("a"):
        assert admission.requests == 1


def test_requests_of_one_key_hold_half_of_the_bytes_unless_one_of_them_is_larger() -> None:
    admission = Admission(9, 100)
    with admission.admit("a") as first, admission.admit("a") as second, admission.admit("b") as other:
        first.hold(60)
        with refused("overloaded", match='the key "a" hold 60 bytes, half of the limit'):
            second.hold(1)
        other.hold(40)
    with admission.admit("a") as second:
        second.hold(50)
    assert admission.bytes == 0


def test_rollouts_have_half_of_the_requests() -> None:
    admission = Admission(4, 100)
    tickets = [Ticket(admission) for _ in range(4)]
    for ticket in tickets[:2]:
        ticket.enter(rollout=True)
    with refused("overloaded", match="2 rollouts are in flight"):
        tickets[2].enter(rollout=True)
    tickets[2].enter()
    tickets[0].end()
    tickets[3].enter(rollout=True)
    assert admission.requests == 3


def test_a_request_that_turns_out_to_be_a_rollout_is_counted_once() -> None:
    admission = Admission(2, 100)
    with admission.admit("a") as ticket:
        ticket.enter(rollout=True)
        assert admission.requests == 1
        with admission.admit("b") as other, refused("overloaded", match="1 rollouts are in flight"):
            other.enter(rollout=True)
    assert admission.requests == 0
    assert set(admission.groups.values()) == {0}


def test_a_response_is_counted_beyond_every_limit_until_it_is_sent() -> None:
    admission = Admission(9, 100)
    with admission.admit() as ticket:
        ticket.hold(90)
        ticket.add(50)
        with refused("overloaded", match="140 bytes"), admission.admit() as other:
            other.hold(1)
        ticket.add(-50)
        assert admission.bytes == 90
    assert admission.bytes == 0
