"""Runs a command under a lock of kazoo: kazoo_lock.py HOSTS PATH CMD..."""

import subprocess
import sys

from kazoo.client import KazooClient

hosts, path, *command = sys.argv[1:]
client = KazooClient(hosts=hosts)
client.start()
with client.Lock(path):
    code = subprocess.run(command).returncode
client.stop()
sys.exit(code)
