/*
 * The floor of `rlock run` on one Redis node: the least that a program can do which takes a lock, runs a command under
 * it and gives it back. One connection, one SET NX PX, the command, one compare-and-delete. No renewal, no signals, no
 * waiting: what rlock adds to this is the price of its promises.
 *
 * usage: floor IPV4 PORT KEY CMD [ARGS...]
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void fail(const char *what)
{
	perror(what);
	exit(70);
}

static int connected(const char *address, const char *port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(port)) };
	int one = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || inet_pton(AF_INET, address, &to.sin_addr) != 1)
		fail("socket");
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) || connect(fd, (struct sockaddr *)&to, sizeof to))
		fail("connect");
	return fd;
}

/* Sends one request and reads its one-line reply, which must be `expected`. */
static void exchange(int fd, const char *request, int length, const char *expected)
{
	char reply[256];
	size_t got = 0;

	if (write(fd, request, (size_t)length) != length)
		fail("write");
	do {
		ssize_t n = read(fd, reply + got, sizeof reply - 1 - got);
		if (n <= 0)
			fail("read");
		got += (size_t)n;
		reply[got] = '\0';
	} while (!strstr(reply, "\r\n"));
	if (strcmp(reply, expected)) {
		fprintf(stderr, "floor: expected %s, got %s", expected, reply);
		exit(75);
	}
}

static void fresh_token(char token[33])
{
	unsigned char bytes[16];

	if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
		fail("getrandom");
	for (int i = 0; i < 16; i++)
		sprintf(token + 2 * i, "%02x", bytes[i]);
}

static int run(char **argv)
{
	pid_t pid;
	int status;

	if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ))
		fail("spawn");
	if (waitpid(pid, &status, 0) != pid)
		fail("waitpid");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
	static const char script[] =
		"if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end";
	char token[33], request[1024];
	int fd, length, code;

	if (argc < 5) {
		fputs("usage: floor IPV4 PORT KEY CMD [ARGS...]\n", stderr);
		return 64;
	}
	fd = connected(argv[1], argv[2]);
	fresh_token(token);
	length = snprintf(request, sizeof request,
		"*6\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$32\r\n%s\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n30000\r\n",
		strlen(argv[3]), argv[3], token);
	exchange(fd, request, length, "+OK\r\n");
	code = run(argv + 4);
	length = snprintf(request, sizeof request,
		"*5\r\n$4\r\nEVAL\r\n$%zu\r\n%s\r\n$1\r\n1\r\n$%zu\r\n%s\r\n$32\r\n%s\r\n",
		sizeof script - 1, script, strlen(argv[3]), argv[3], token);
	exchange(fd, request, length, ":1\r\n");
	return code;
}
