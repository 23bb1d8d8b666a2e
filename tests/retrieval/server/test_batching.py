import asyncio
import threading
import time

import pytest

from sleuth.retrieval.server.batching import Batcher, QueueFull


class Engine:
    """Waits until it is let go, and notes what it is asked."""

    def __init__(self):
        self.calls = []
        self.go = threading.Event()

    def __call__(self, queries, k):
        self.calls.append((list(queries), k))
        self.go.wait(10)
        if "bad" in queries:
            raise RuntimeError("broken")
        return [f"{query}/{k}" for query in queries]


def run(work):
    engine = Engine()

    async def main():
        return await work(engine)

    return asyncio.run(main())


def test_what_waits_goes_into_the_next_batch_and_everybody_gets_his_own():
    async def work(engine):
        batcher = Batcher(engine, threads=1)
        first = asyncio.create_task(batcher.submit(["a"], 3))
        await asyncio.sleep(0.05)
        rest = [asyncio.create_task(batcher.submit([f"q{n}", f"r{n}"], 3)) for n in range(5)]
        await asyncio.sleep(0.05)
        assert batcher.waiting == 10
        engine.go.set()
        assert await first == ["a/3"]
        assert await asyncio.gather(*rest) == [[f"q{n}/3", f"r{n}/3"] for n in range(5)]
        assert [len(queries) for queries, _ in engine.calls] == [1, 10]
        assert batcher.waiting == 0

    run(work)


def test_calls_with_another_k_and_those_too_large_go_apart():
    async def work(engine):
        batcher = Batcher(engine, threads=1, largest=4)
        tasks = [
            asyncio.create_task(batcher.submit([f"a{n}"] * size, k))
            for n, (size, k) in enumerate([(1, 1), (3, 1), (2, 1), (1, 2), (9, 2)])
        ]
        await asyncio.sleep(0.05)
        engine.go.set()
        answers = await asyncio.gather(*tasks)
        assert [len(answer) for answer in answers] == [1, 3, 2, 1, 9]
        assert [(len(queries), k) for queries, k in engine.calls] == [(4, 1), (2, 1), (1, 2), (4, 2), (4, 2), (1, 2)]

    run(work)


def test_a_full_queue_refuses_and_serves_again_later():
    async def work(engine):
        batcher = Batcher(engine, threads=1, waiting=2)
        tasks = [asyncio.create_task(batcher.submit(["a"], 1))]
        await asyncio.sleep(0.05)
        tasks += [asyncio.create_task(batcher.submit(["a"], 1)) for _ in range(2)]
        await asyncio.sleep(0.05)
        with pytest.raises(QueueFull):
            await batcher.submit(["b"], 1)
        engine.go.set()
        await asyncio.gather(*tasks)
        assert await batcher.submit(["b"], 1) == ["b/1"]
        assert await batcher.submit(["c"] * 50, 1) == ["c/1"] * 50

    run(work)


def test_an_error_reaches_those_of_its_batch_alone():
    async def work(engine):
        engine.go.set()
        batcher = Batcher(engine, threads=1)
        with pytest.raises(RuntimeError, match="broken"):
            await batcher.submit(["bad"], 1)
        assert await batcher.submit(["good"], 1) == ["good/1"]

    run(work)


def test_a_panic_that_is_no_exception_is_heard_of():
    class Panic(BaseException):
        pass

    def search(queries, k):
        raise Panic("index out of bounds")

    async def main():
        batcher = Batcher(search)
        for _ in range(2):  # in a thread, then on the loop
            with pytest.raises(RuntimeError, match="index out of bounds"):
                await batcher.submit(["a"], 1)
            batcher._pace = 0.0

    asyncio.run(main())


def test_a_client_that_went_away_is_not_searched_for():
    async def work(engine):
        batcher = Batcher(engine, threads=1)
        first = asyncio.create_task(batcher.submit(["a"], 1))
        await asyncio.sleep(0.05)
        gone = asyncio.create_task(batcher.submit(["gone"], 1))
        await asyncio.sleep(0)
        gone.cancel()
        last = asyncio.create_task(batcher.submit(["b"], 1))
        await asyncio.sleep(0)
        engine.go.set()
        assert await asyncio.gather(first, last) == [["a/1"], ["b/1"]]
        assert [queries for queries, _ in engine.calls] == [["a"], ["b"]]

    run(work)


def test_short_searches_are_made_on_the_loop_in_batches_that_stay_short():
    threads, sizes = [], []

    def search(queries, k):
        threads.append(threading.current_thread() is threading.main_thread())
        sizes.append(len(queries))
        return [f"{query}/{k}" for query in queries]

    async def main():
        batcher = Batcher(search)
        first = await batcher.submit(["how long this takes is not known yet"], 1)
        batcher._pace = 0.9e-5  # seconds a character: 0.09 ms for each query below, 4.5 ms for the last call
        calls = [[f"q{n:09}"] for n in range(50)] + [[f"r{n:09}" for n in range(50)]]
        rest = await asyncio.gather(*(batcher.submit(call, 2) for call in calls))
        return first, calls, rest

    def steady(self, queries, k):
        return self.search(queries, k), None

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Batcher, "_timed", steady)
        first, calls, rest = asyncio.run(main())
    assert first == ["how long this takes is not known yet/1"]
    assert rest == [[f"{query}/2" for query in call] for call in calls]
    assert threads == [False, True, True, True, False]
    assert sizes == [1, 22, 22, 6, 50]


def test_a_long_search_on_the_loop_is_the_last_one_there():
    threads = []

    def search(queries, k):
        threads.append(threading.current_thread() is threading.main_thread())
        time.sleep(0.05)
        return list(queries)

    async def main():
        batcher = Batcher(search)
        batcher._pace = 1e-9
        for _ in range(3):
            await batcher.submit(["query"], 1)

    asyncio.run(main())
    assert threads == [True, False, False]


def test_threads_search_side_by_side():
    async def work(engine):
        batcher = Batcher(engine, threads=2)
        tasks = [asyncio.create_task(batcher.submit([query], 1)) for query in "abc"]
        started = time.monotonic()
        while len(engine.calls) < 2 and time.monotonic() - started < 5:
            await asyncio.sleep(0.01)
        assert sorted(queries for queries, _ in engine.calls) == [["a", "b"], ["c"]]
        engine.go.set()
        assert await asyncio.gather(*tasks) == [["a/1"], ["b/1"], ["c/1"]]

    run(work)


def test_a_large_call_is_searched_in_parts_side_by_side():
    async def work(engine):
        engine.go.set()
        batcher = Batcher(engine, threads=2, largest=4)
        queries = [f"q{n}" for n in range(10)]
        assert await batcher.submit(queries, 2) == [f"{query}/2" for query in queries]
        assert sorted(len(called) for called, _ in engine.calls) == [2, 4, 4]

    run(work)
