"""What renews a site's lease: progress at a part of its own past rate, and nothing that comes for nothing."""

from __future__ import annotations

from pfl_server.decisions.lease import FRESH_STARTS, Lease, Pace

PAST = Pace(progress=1000, seconds=10.0, upload_seconds=2.0)


def at_work(past: Pace | None = PAST) -> Lease:
    """Of a site that came for its task at 0 and had its download of 50 bytes at once."""
    lease = Lease(0.0, past=past, transfer_seconds=100.0)
    lease.ask(0.0, again=False)
    lease.size, lease.fetched = 50, 0.0
    return lease


def renewals(lease: Lease, *beats: tuple[int, float]) -> list[bool]:
    """Whether each beat of (progress, seconds) renews it."""
    found = []
    for progress, now in beats:
        before = lease.renewed
        lease.progress_to(progress, now)
        found.append(lease.renewed > before)
    return found


def test_a_counter_that_crawls_renews_for_as_long_as_the_site_took_before() -> None:
    """Afterwards a fifth of its own past rate is asked for."""
    assert [True, True, False, False] == renewals(at_work(), (51, 5), (52, 9.9), (53, 11), (54, 400))
    assert [True, True, True] == renewals(at_work(), (300, 5), (400, 20), (1050, 50))


def test_a_counter_that_runs_away_renews_nothing() -> None:
    """A site says of itself how far it is: four times as far as before is more than there is to do."""
    assert [True, False] == renewals(at_work(), (4050, 5), (4051, 6))


def test_a_site_without_a_past_is_taken_at_its_word() -> None:
    """Its first task has nothing to be measured by; rounds have a bound of their own for it."""
    assert [True] * 3 == renewals(at_work(None), (51, 5), (52, 500), (10**9, 600))


def test_a_task_asked_again_renews_nothing() -> None:
    """A site that was killed begins to count anew, a few times; to ask alone is no progress."""
    lease = at_work()
    assert [True] == renewals(lease, (60, 1))
    for again in range(FRESH_STARTS + 2):
        before = lease.renewed
        lease.ask(2.0 + again, again=True)
        assert before == lease.renewed
        assert [again < FRESH_STARTS] == renewals(lease, (51, 2.0 + again))


def test_a_download_that_crawls_renews_nothing() -> None:
    """A byte a second is no rate at which it will ever be whole."""
    lease = Lease(0.0, transfer_seconds=100.0)
    lease.ask(0.0, again=False)
    lease.size = 1_000_000
    assert [True, False, False, True] == renewals(lease, (20_000, 1), (20_001, 3), (20_002, 4), (90_000, 5))


def test_an_upload_that_crawls_renews_nothing() -> None:
    """As above; and to offer other bytes lets it begin anew a few times only."""
    lease = at_work()
    lease.offer(1_000_000, 10.0)
    lease.grow_to(1, 15.0)
    assert 0.0 == lease.renewed
    lease.grow_to(100_000, 16.0)
    assert 16.0 == lease.renewed
    for again in range(FRESH_STARTS + 1):
        lease.begin_upload_anew()
        lease.grow_to(99_999, 19.0 + again / 10)
        assert (19.0 + again / 10 == lease.renewed) is (again < FRESH_STARTS)


def test_the_pace_of_a_task() -> None:
    """What the next one is measured by: the counter without the bytes of the download, and how long it took."""
    lease = at_work(None)
    lease.progress_to(650, 8.0)
    lease.offer(500, 9.0)
    assert lease.pace is None
    lease.store(12.0)
    assert Pace(600, 9.0, 3.0) == lease.pace
