"""The order of tasks."""

from bench.rivals.schedule import Task, longest_first

SIZES = {"small": 100, "middle": 400, "large": 10_000}


def row(peer, dataset, seconds):
    return {"peer": peer, "dataset": dataset, "split": 0, "processor_fit": seconds}


def test_what_took_longest_on_another_split_comes_first():
    rows = [row("a", "small", 9.0), row("b", "small", 5.0), row("a", "large", 1.0), row("b", "large", 7.0)]
    tasks = [Task(name, 1, peer) for name in ("small", "large") for peer in ("a", "b")]
    expected = [("a", "small"), ("b", "large"), ("b", "small"), ("a", "large")]
    assert [(task.peer, task.dataset) for task in longest_first(tasks, rows, SIZES, 60.0)] == expected


def test_a_set_without_rows_is_expected_by_its_size():
    rows = [row("a", "small", 2.0), row("b", "middle", 1.0)]  # on large: 2 · √100 = 20 and 1 · √25 = 5
    tasks = [Task("large", 0, "b"), Task("small", 1, "a"), Task("large", 0, "a")]
    assert longest_first(tasks, rows, SIZES, 60.0) == [tasks[2], tasks[0], tasks[1]]


def test_a_peer_without_rows_is_expected_to_use_its_limit_and_nobody_more():
    rows = [row("a", "small", 9.0), row("a", "large", 100.0), {"peer": "b", "dataset": "*", "split": 0, "error": "no"}]
    tasks = [Task("small", 1, "a"), Task("small", 1, "b"), Task("large", 1, "a")]
    assert longest_first(tasks, rows, SIZES, 60.0) == [tasks[2], tasks[1], tasks[0]]
