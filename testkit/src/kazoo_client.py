"""A client of kazoo that tests drive: one command a line, one answer a line.

An answer begins with the words of its command. `held NAME` comes when a lock is.
"""

import contextlib
import socket
import struct
import sys
import threading
import uuid

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import READ_ACL_UNSAFE, make_digest_acl

client = KazooClient(hosts=sys.argv[1], timeout=float(sys.argv[2]))
client.start(timeout=30)
locks = {}
print("ready", flush=True)


def password(session):
    """Returns a session's password: java.util.Random's bytes (ZooKeeperServer.java, generatePasswd)."""
    seed = (session ^ 0xB3415C00 ^ 0x5DEECE66D) & (1 << 48) - 1
    told = b""
    for _ in range(4):
        seed = seed * 0x5DEECE66D + 0xB & (1 << 48) - 1
        told += (seed >> 16).to_bytes(4, "little")
    return told


def attach(path, hosts):
    """Attaches to the session of an entry."""
    session = client.get(path)[1].ephemeralOwner
    other = KazooClient(hosts=hosts, timeout=10, client_id=(session, password(session)))
    other.start(timeout=10)
    return other


def end(path):
    """Ends the session of an entry. Its client may attach it again before: then once more."""
    session = client.get(path)[1].ephemeralOwner
    attach = struct.pack(">iqiq", 0, 0, 10000, session) + struct.pack(">i", 16)
    attach += password(session) + b"\0"
    frames = [attach, struct.pack(">ii", 1, -11)]
    host, port = sys.argv[1].split(":")
    while client.exists(path):
        with socket.create_connection((host, int(port)), timeout=10) as stream:
            stream.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
            with contextlib.suppress(ConnectionError):
                while stream.recv(4096):
                    pass


def take(name, lock):
    lock.acquire()
    print("held", name, flush=True)


def obey(word, *rest):
    if word == "occupy":
        client.ensure_path(rest[0])
        name = f"{rest[0]}/{uuid.uuid4().hex}__lock__"
        return client.create(name, b"other", ephemeral=True, sequence=True)
    if word == "lease":
        name = f"{rest[0]}/leases/{uuid.uuid4()}-lease-"
        return client.create(name, b"other", ephemeral=True, sequence=True)
    if word == "clear":
        for child in client.get_children(rest[0]):
            # Its client may give up the others once one is gone.
            with contextlib.suppress(NoNodeError):
                client.delete(f"{rest[0]}/{child}")
        return ""
    if word == "protect":
        client.create(rest[0], acl=READ_ACL_UNSAFE)
        return ""
    if word == "own":
        client.create(rest[0], acl=[make_digest_acl(rest[1], rest[2], all=True)])
        return ""
    if word == "attach":
        locks[rest[0]] = attach(rest[0], rest[1])
        return ""
    if word == "end":
        end(rest[0])
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
