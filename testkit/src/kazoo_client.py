"""A client of kazoo that tests drive: one command a line, one answer a line.

An answer begins with the words of its command. `held NAME` comes when a lock is.
"""

import sys
import threading
import uuid

from kazoo.client import KazooClient
from kazoo.security import READ_ACL_UNSAFE

client = KazooClient(hosts=sys.argv[1], timeout=float(sys.argv[2]))
client.start(timeout=30)
locks = {}
print("ready", flush=True)


def take(name, lock):
    lock.acquire()
    print("held", name, flush=True)


def obey(word, *rest):
    if word == "occupy":
        client.ensure_path(rest[0])
        name = f"{rest[0]}/{uuid.uuid4().hex}__lock__"
        return client.create(name, b"other", ephemeral=True, sequence=True)
    if word == "clear":
        for child in client.get_children(rest[0]):
            client.delete(f"{rest[0]}/{child}")
        return ""
    if word == "protect":
        client.create(rest[0], acl=READ_ACL_UNSAFE)
        return ""
    if word == "children":
        return " ".join(sorted(client.get_children(rest[0])))
    if word == "set":
        client.set(rest[0], rest[1].encode())
        return ""
    if word == "delete":
        client.delete(rest[0])
        return ""
    if word == "get":
        return client.get(rest[0])[0].decode()
    if word == "lock":
        name, kind, path = rest
        locks[name] = getattr(client, kind)(path)
        threading.Thread(target=take, args=(name, locks[name]), daemon=True).start()
        return ""
    if word == "unlock":
        locks[rest[0]].release()
        return ""
    if word == "state":
        return f"{client.state} {client.connected}"
    raise ValueError(word)


for line in sys.stdin:
    words = line.split()
    try:
        print("answer", obey(*words), flush=True)
    except Exception as error:  # pylint: disable=broad-except
        print("failed", type(error).__name__, error, flush=True)
