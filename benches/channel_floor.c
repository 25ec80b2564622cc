/* The floor under any request and reply over a unix SEQPACKET socket: two processes, blocking calls, no work.
 *
 *     channel_floor REQUEST_BYTES REPLY_BYTES COUNT      prints the median round trip in nanoseconds
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    size_t request_bytes = atol(argv[1]), reply_bytes = atol(argv[2]);
    int count = atoi(argv[3]), ends[2];
    if (count < 1 || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends))
        return 1;
    size_t longest = request_bytes > reply_bytes ? request_bytes : reply_bytes;
    char *buffer = calloc(1, longest);
    long long *taken = malloc(count * sizeof *taken);
    pid_t server = fork();
    if (server == 0) {
        close(ends[0]);
        while (recv(ends[1], buffer, longest, 0) > 0)
            send(ends[1], buffer, reply_bytes, 0);
        _exit(0);
    }
    close(ends[1]);
    for (int i = 0; i < count; i++) {
        long long start = now_ns();
        if (send(ends[0], buffer, request_bytes, 0) < 0 || recv(ends[0], buffer, longest, 0) < 0)
            return 1;
        taken[i] = now_ns() - start;
    }
    close(ends[0]);
    waitpid(server, NULL, 0);
    qsort(taken, count, sizeof *taken, ascending);
    printf("%lld\n", taken[count / 2]);
    return 0;
}
