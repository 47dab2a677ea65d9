"""Nobody's long work holds up everybody: the queue's rule worked by hand, and simulated."""

from app.backend.fair_queue import FairQueue


def serve(queue: FairQueue, seconds: float, times: int) -> list[str]:
    """Serve turns of equal length; items are not finished."""
    order = []
    for _ in range(times):
        user, _ = queue.next()
        order.append(user)
        queue.charge(user, seconds)
    return order


def test_first_in_first_out_inside_one_user():
    queue = FairQueue()
    for item in "abc":
        queue.put("ann", item)
    found = []
    while (turn := queue.next()) is not None:
        found.append(turn[1])
        queue.remove(turn[1])
    assert found == ["a", "b", "c"]


def test_users_take_turns_by_the_seconds_they_got():
    queue = FairQueue()
    queue.put("ann", "sweep")
    queue.put("bob", "small")
    queue.charge(queue.next()[0], 2.0)  # ann, who came first, uses 2 s
    assert serve(queue, 0.5, 5) == ["bob", "bob", "bob", "bob", "ann"], (
        "bob is owed 2 s; at equal tags the older turn goes first"
    )


def test_rest_earns_no_credit():
    queue = FairQueue()
    queue.put("ann", "sweep")
    serve(queue, 1.0, 10)
    queue.put("bob", "late")
    turns = serve(queue, 1.0, 6)
    assert turns.count("bob") <= 4 and turns.count("ann") >= 2, (
        "bob must not be served ten times in a row for having slept"
    )


def test_an_item_wanted_by_two_users_runs_on_whichever_turn_comes_first_and_leaves_both_lines():
    queue = FairQueue()
    queue.put("ann", "sweep")
    queue.put("ann", "shared")
    queue.put("bob", "shared")
    queue.charge(queue.next()[0], 5.0)
    assert queue.next() == ("bob", "shared")
    queue.remove("shared")
    assert list(queue) == ["sweep"] and len(queue) == 1


def test_small_requests_do_not_wait_for_a_sweep():
    """One user queues 60 s in 0.5-s quanta; another asks for 0.2 s at time 3: it is served next, not after the sweep."""
    queue = FairQueue()
    queue.put("sweeper", "sweep")
    serve(queue, 0.5, 6)
    queue.put("student", "small")
    served = serve(queue, 0.5, 2)
    assert "student" in served


def test_the_table_of_tags_does_not_grow_with_every_visitor():
    queue = FairQueue()
    for number in range(1000):
        queue.put(f"user {number}", f"item {number}")
        user, item = queue.next()
        queue.charge(user, 0.1)
        queue.remove(item)
        assert queue.next() is None
    assert not queue._tags


def test_the_end_of_a_busy_period_forgets_debts_but_not_the_order_of_time():
    queue = FairQueue()
    queue.put("ann", "sweep")
    serve(queue, 1.0, 5)
    queue.remove("sweep")
    assert queue.next() is None
    queue.put("ann", "again")
    queue.put("bob", "first")
    assert serve(queue, 1.0, 4) == ["ann", "bob", "ann", "bob"]
