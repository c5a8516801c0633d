"""A command under redis-py's Lock, which asks every 0.1 s by default and is not renewed, so that the lease has to outlast it.

redis_py.py URL KEY CMD [ARGS...]
"""

import subprocess
import sys

import redis

url, key, *command = sys.argv[1:]
with redis.Redis.from_url(url).lock(key, timeout=600):
    code = subprocess.run(command).returncode
sys.exit(code)
