"""A command under redis-py's Lock, which by default asks every 0.1 s and has no lease: it stays until it is released.

redis_py.py URL KEY CMD [ARGS...]
"""

import subprocess
import sys

import redis

url, key, *command = sys.argv[1:]
with redis.Redis.from_url(url).lock(key):
    code = subprocess.run(command).returncode
sys.exit(code)
