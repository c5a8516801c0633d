/*
 * The floor of `rlock run`: the least that a program can do which takes a lock on one server, or on each of several, runs a
 * command under it and gives it back. For each server one connection, one SET NX PX, and behind the command one
 * compare-and-delete. No renewal, no signals, no waiting: what rlock adds to this is the price of its promises.
 *
 * usage: floor IPV4 PORT[,PORT...] KEY CMD [ARGS...]
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

#define MOST_SERVERS 16

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

/* Reads one reply of one line, which must be `expected`. */
static void expect(int fd, const char *expected)
{
	char reply[256];
	size_t got = 0;

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

/* Sends one request to each server, and then reads the replies. */
static void exchange(const int *fds, int servers, const char *request, int length, const char *expected)
{
	for (int i = 0; i < servers; i++)
		if (write(fds[i], request, (size_t)length) != length)
			fail("write");
	for (int i = 0; i < servers; i++)
		expect(fds[i], expected);
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
	int fds[MOST_SERVERS], servers = 0, length, code;

	if (argc < 5) {
		fputs("usage: floor IPV4 PORT[,PORT...] KEY CMD [ARGS...]\n", stderr);
		return 64;
	}
	for (char *port = strtok(argv[2], ","); port && servers < MOST_SERVERS; port = strtok(NULL, ","))
		fds[servers++] = connected(argv[1], port);
	fresh_token(token);
	length = snprintf(request, sizeof request,
		"*6\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$32\r\n%s\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n30000\r\n",
		strlen(argv[3]), argv[3], token);
	exchange(fds, servers, request, length, "+OK\r\n");
	code = run(argv + 4);
	length = snprintf(request, sizeof request,
		"*5\r\n$4\r\nEVAL\r\n$%zu\r\n%s\r\n$1\r\n1\r\n$%zu\r\n%s\r\n$32\r\n%s\r\n",
		sizeof script - 1, script, strlen(argv[3]), argv[3], token);
	exchange(fds, servers, request, length, ":1\r\n");
	return code;
}
