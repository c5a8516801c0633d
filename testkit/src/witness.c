/*
 * A command that logs when it ran: it takes the boot time first and last, and appends both to a file as one line,
 * `LABEL FENCE BEGIN END` in ns, in one write. FENCE is RLOCK_FENCE, or 0.
 *
 * usage: witness FILE LABEL STAY
 *
 * STAY is how long it runs, in microseconds, or a FIFO (an absolute path): then it runs until the process that has opened
 * it for writing closes it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void stay(const char *how)
{
	char byte;
	int gate;

	if (*how != '/') {
		if (atoi(how) > 0)
			usleep((useconds_t)atoi(how));
		return;
	}
	gate = open(how, O_RDONLY | O_CLOEXEC);
	if (gate < 0) {
		perror(how);
		exit(70);
	}
	while (read(gate, &byte, 1) > 0)
		;
}

int main(int argc, char **argv)
{
	long long begin = now();
	const char *fence = getenv("RLOCK_FENCE");
	char line[256];
	int out, length;

	if (argc != 4) {
		fputs("usage: witness FILE LABEL STAY\n", stderr);
		return 64;
	}
	out = open(argv[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (out < 0) {
		perror(argv[1]);
		return 70;
	}
	stay(argv[3]);
	length = snprintf(line, sizeof line, "%s %s %lld %lld\n", argv[2], fence ? fence : "0", begin, now());
	return write(out, line, (size_t)length) == length ? 0 : 70;
}
