"""redis-py's Lock, pottery's Redlock and redlock-py, driven by lines on stdin as README.md says.

client.py LIBRARY URL...
"""

import logging
import sys

import pottery
import redis
import redlock


class RedisPy:
    def __init__(self, urls):
        [url] = urls
        self.server = redis.Redis.from_url(url)

    def acquire(self, key, ttl_ms):
        self.lock = redis.lock.Lock(self.server, key, timeout=ttl_ms / 1000, blocking=False)
        return self.lock.acquire()

    def release(self):
        try:
            self.lock.release()
        except redis.exceptions.LockError:
            return "not ours"
        return "released"


class Pottery:
    def __init__(self, urls):
        self.servers = {redis.Redis.from_url(url) for url in urls}

    def acquire(self, key, ttl_ms):
        # It puts this before every key.
        name = key.removeprefix("redlock:")
        self.lock = pottery.Redlock(key=name, masters=self.servers, auto_release_time=ttl_ms / 1000)
        assert self.lock.key == key, self.lock.key
        return self.lock.acquire(blocking=False)

    def release(self):
        try:
            self.lock.release()
        except pottery.ReleaseUnlockedLock:
            return "not ours"
        return "released"


class RedlockPy:
    def __init__(self, urls):
        self.locks = redlock.Redlock(urls, retry_count=1, retry_delay=0.001)
        self.lock = None

    def acquire(self, key, ttl_ms):
        lock = self.locks.lock(key, ttl_ms)
        self.lock = lock or self.lock
        return bool(lock)

    def release(self):
        self.locks.unlock(self.lock)
        return "tried"


def answer(client, line):
    match line.split():
        case ["acquire", key, ttl_ms]:
            return "held" if client.acquire(key, int(ttl_ms)) else "refused"
        case ["release"]:
            return client.release()
    raise ValueError(f"{line!r} makes no sense")


def main():
    logging.disable()
    library, *urls = sys.argv[1:]
    client = {"redis-py": RedisPy, "pottery": Pottery, "redlock-py": RedlockPy}[library](urls)
    for line in sys.stdin:
        try:
            print(answer(client, line), flush=True)
        except Exception as error:
            print(f"error {error!r}", flush=True)


main()
