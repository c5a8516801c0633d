"""A client of kazoo's Lock as a command, and an operator who takes a lock away by hand.

lock HOSTS PATH SECONDS COMMAND...: takes the lock with a session of that timeout, runs COMMAND, and
gives the lock back.
take-away HOSTS PATH SECONDS: deletes the entries of the rlock that has the lock, and prints its
token.
"""

import contextlib
import re
import subprocess
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout, NoNodeError

ENTRY = re.compile(r"(?:_c_(.{36})-)?.*?(\d{10})$")

what, hosts, path, seconds, *command = sys.argv[1:]
client = KazooClient(hosts=hosts, timeout=float(seconds))
client.start(timeout=float(seconds))
try:
    if what == "lock":
        lock = client.Lock(path)
        with contextlib.suppress(LockTimeout):
            lock.acquire(timeout=float(seconds))
            subprocess.run(command, check=False)
            lock.release()
    else:
        entries = [entry for entry in map(ENTRY.match, client.get_children(path)) if entry]
        token = min(entries, key=lambda entry: entry[2])[1] if entries else None
        for entry in entries:
            if token and entry[1] == token:
                with contextlib.suppress(NoNodeError):
                    client.delete(f"{path}/{entry[0]}")
        print(token or "")
finally:
    client.stop()
    client.close()
