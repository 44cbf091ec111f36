"""LangGraph with SqliteSaver on the same work as checkpoints.rs: ten nodes in a row and one long text.

usage: bench.py TEXT_FILE SCRATCH_DIRECTORY; prints one JSON object, times in milliseconds."""

import json
import multiprocessing
import os
import statistics
import sys
import threading
import time
from typing import TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

NODES, RUNS, SIDE_BY_SIDE, RESUMED = 10, 60, 8, 20
TEXT = open(sys.argv[1], encoding="utf-8").read()
SCRATCH = sys.argv[2]


class State(TypedDict):
    document: str
    count: int


class Stopped(Exception):
    pass


def graph(rewrite, stop_at=None):
    """Builds the graph. The node whose number is in `stop_at` fails."""
    built = StateGraph(State)

    def node(number):
        def work(state):
            if stop_at and stop_at[0] == number:
                raise Stopped
            left = {"count": state["count"] + 1}
            if rewrite:
                left["document"] = f"{number} {TEXT}"
            return left

        return work

    names = [f"node{number}" for number in range(NODES)]
    for number, name in enumerate(names):
        built.add_node(name, node(number))
    for before, after in zip([START, *names], [*names, END]):
        built.add_edge(before, after)
    return built


def walk(database, rewrite, runs):
    """Milliseconds per step of each run, and bytes of the file per run."""
    steps = []
    with SqliteSaver.from_conn_string(database) as saver:
        app = graph(rewrite).compile(checkpointer=saver)
        for run in range(runs):
            thread = {"configurable": {"thread_id": str(run)}}
            before = time.perf_counter()
            app.invoke({"document": TEXT, "count": 0}, thread)
            steps.append((time.perf_counter() - before) * 1e3 / NODES)
    return steps[2:], os.path.getsize(database) / runs


def resume(number):
    database = os.path.join(SCRATCH, f"peer-resume-{number}.db")
    thread, stop_at = {"configurable": {"thread_id": "x"}}, [NODES - 1]
    with SqliteSaver.from_conn_string(database) as saver:
        try:
            graph(True, stop_at).compile(checkpointer=saver).invoke({"document": TEXT, "count": 0}, thread)
        except Stopped:
            stop_at[0] = None
    before = time.perf_counter()
    with SqliteSaver.from_conn_string(database) as saver:
        app = graph(True, stop_at).compile(checkpointer=saver)
        assert app.get_state(thread).next == (f"node{NODES - 1}",)
        assert app.invoke(None, thread)["count"] == NODES
    return (time.perf_counter() - before) * 1e3


def one_of_many(number):
    walk(os.path.join(SCRATCH, f"peer-many-{os.getpid()}-{number}.db"), True, RUNS)


def rate(start):
    before = time.perf_counter()
    start()
    return SIDE_BY_SIDE * RUNS * NODES / (time.perf_counter() - before)


def threads():
    working = [threading.Thread(target=one_of_many, args=(number,)) for number in range(SIDE_BY_SIDE)]
    for thread in working:
        thread.start()
    for thread in working:
        thread.join()


def main():
    rewritten, growth = walk(os.path.join(SCRATCH, "peer-rewritten.db"), True, RUNS)
    once, _ = walk(os.path.join(SCRATCH, "peer-once.db"), False, RUNS)
    with multiprocessing.get_context("fork").Pool(SIDE_BY_SIDE) as pool:
        processes = rate(lambda: pool.map(one_of_many, range(SIDE_BY_SIDE)))
    print(json.dumps({
        "rewritten": statistics.median(rewritten),
        "once": statistics.median(once),
        "growth": growth,
        "resume": statistics.median(resume(number) for number in range(RESUMED)),
        "threads": rate(threads),
        "processes": processes,
    }))


if __name__ == "__main__":
    main()
