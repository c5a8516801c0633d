/*
 * A command that logs when it ran: it takes the boot time with its first instruction and at its end, and appends both to a file as one line,
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

/* When the program began. */
struct timespec began;

/*
 * The entry (-e first), before the C library's own. glibc asks the processor for its features some thirty times, and each of them
 * leaves a virtual machine: half a millisecond that no lock is to blame for.
 */
#if defined(__x86_64__)
__asm__(".globl first\n"
	"first:\n"
	"	mov $228, %eax\n" /* clock_gettime */
	"	mov $7, %edi\n"   /* CLOCK_BOOTTIME */
	"	lea began(%rip), %rsi\n"
	"	syscall\n"
	"	jmp _start\n");
#elif defined(__aarch64__)
__asm__(".globl first\n"
	"first:\n"
	"	mov x9, x0\n"
	"	mov x8, #113\n" /* clock_gettime */
	"	mov x0, #7\n"   /* CLOCK_BOOTTIME */
	"	adrp x1, began\n"
	"	add x1, x1, :lo12:began\n"
	"	svc #0\n"
	"	mov x0, x9\n"
	"	b _start\n");
#else
#error "no entry for this processor"
#endif

static long long ns(struct timespec t)
{
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return ns(t);
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
	length = snprintf(line, sizeof line, "%s %s %lld %lld\n", argv[2], fence ? fence : "0", ns(began), now());
	return write(out, line, (size_t)length) == length ? 0 : 70;
}
