/* The C control of ring.py: random page reads through io_uring into a pool of 2 MiB pages, each page
 * hashed and compared with the hash in its trailer. One thread, a fixed window of pages at the device,
 * twice as many buffers: what landed is replaced at the device first and hashed then.
 *
 * usage: ring_baseline FILE PAGES IMAGE_BYTES WINDOW READS VERIFY SEED
 * prints one line of JSON: seconds, user_s, system_s, wrong
 */
#define _GNU_SOURCE
#define XXH_INLINE_ALL
#include <fcntl.h>
#include <liburing.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum { TRAILER = 4096, HEAD = 100, HUGE = 2 << 20 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static double seconds(struct timeval t) { return t.tv_sec + t.tv_usec * 1e-6; }

static void die(const char *what) {
    perror(what);
    exit(1);
}

static unsigned char *huge_pool(size_t bytes) {
    int fd = memfd_create("baseline", 0);
    if (fd < 0 || ftruncate(fd, bytes)) die("memfd");
    char *reserve = mmap(0, bytes + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *at = (char *)(((uintptr_t)reserve + HUGE - 1) / HUGE * HUGE);
    at = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    if (at == MAP_FAILED) die("mmap");
    memset(at, 1, bytes);
    if (madvise(at, bytes, 25 /* MADV_COLLAPSE */)) perror("collapse");
    return (unsigned char *)at;
}

static int wrong_hash(const unsigned char *image, long image_bytes) {
    const unsigned char *trailer = image + image_bytes - TRAILER;
    uint64_t stored;
    memcpy(&stored, trailer + HEAD, 8);
    return XXH3_64bits_withSeed(image, image_bytes - TRAILER, XXH3_64bits(trailer, HEAD)) != stored;
}

struct work {
    struct io_uring ring;
    int file;
    unsigned char *pool;
    long pages, image_bytes, window, reads, issued, flying, spares, *spare;
};

/* Fill the window as far as there are spare buffers and reads left, with one submission. */
static void issue(struct work *work) {
    while (work->flying < work->window && work->issued < work->reads && work->spares) {
        long buffer = work->spare[--work->spares];
        off_t at = (off_t)(drand48() * work->pages) * work->image_bytes;
        struct io_uring_sqe *sqe = io_uring_get_sqe(&work->ring);
        io_uring_prep_read(sqe, work->file, work->pool + buffer * work->image_bytes, work->image_bytes, at);
        io_uring_sqe_set_data64(sqe, buffer);
        work->issued++, work->flying++;
    }
    io_uring_submit(&work->ring);
}

/* Wait for at least one read; returns how many have landed, their buffers in `landed`. */
static long reap(struct work *work, long *landed) {
    struct io_uring_cqe *cqe;
    unsigned head;
    long fresh = 0;
    io_uring_submit_and_wait(&work->ring, 1);
    io_uring_for_each_cqe(&work->ring, head, cqe) {
        if (cqe->res != work->image_bytes) {
            fprintf(stderr, "a read gave %d\n", cqe->res);
            exit(1);
        }
        landed[fresh++] = cqe->user_data;
    }
    io_uring_cq_advance(&work->ring, fresh);
    work->flying -= fresh;
    return fresh;
}

int main(int count, char **argument) {
    if (count != 8) return 2;
    struct work work = {.pages = atol(argument[2]), .image_bytes = atol(argument[3]),
                        .window = atol(argument[4]), .reads = atol(argument[5])};
    long verify = atol(argument[6]), done = 0, wrong = 0;
    srand48(atol(argument[7]));
    work.file = open(argument[1], O_RDONLY | O_DIRECT);
    if (work.file < 0) die(argument[1]);
    work.spares = 2 * work.window;
    work.pool = huge_pool(((size_t)work.spares * work.image_bytes + HUGE - 1) / HUGE * HUGE);
    work.spare = malloc(work.spares * sizeof *work.spare);
    long *landed = malloc(work.window * sizeof *landed);
    for (long i = 0; i < work.spares; i++) work.spare[i] = i;
    if (io_uring_queue_init(work.window < 8 ? 8 : work.window, &work.ring, 0)) die("io_uring");
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    double begin = now();
    issue(&work);
    while (done < work.reads) {
        long fresh = reap(&work, landed);
        issue(&work);
        for (long i = 0; i < fresh; i++) {
            const unsigned char *image = work.pool + landed[i] * work.image_bytes;
            if (verify) wrong += wrong_hash(image, work.image_bytes);
            work.spare[work.spares++] = landed[i];
        }
        done += fresh;
        if (work.flying < work.window) issue(&work);
    }
    double took = now() - begin;
    getrusage(RUSAGE_SELF, &after);
    printf("{\"seconds\": %f, \"user_s\": %f, \"system_s\": %f, \"wrong\": %ld}\n", took,
           seconds(after.ru_utime) - seconds(before.ru_utime),
           seconds(after.ru_stime) - seconds(before.ru_stime), wrong);
    return 0;
}
