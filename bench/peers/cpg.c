/* A node of a corosync closed process group: multicasts, counts what is delivered, prints figures as JSON.
 *
 *   cpg GROUP NODES WINDOW RATE SECONDS DAEMON
 *
 * Waits until NODES members are in the group, then multicasts 64 bytes at a time with agreed ordering: WINDOW of its own
 * undelivered at most (RATE 0), or RATE a second, each when it is due. A message of its own that is delivered back has
 * its place in the order: latency runs until then, from when it was due (RATE) or sent. The order itself is the
 * delivered sequence; a running hash of it is printed, so that nodes can be compared. DAEMON: the process whose time is
 * counted beside its own.
 *
 * Limits: one thread; at most 65536 of its own in flight.
 */
#include <corosync/corotypes.h>
#include <corosync/cpg.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define SIZE 64
#define SAMPLES (1u << 22)

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint32_t own_node;
static size_t members;
static uint64_t all, own, hash = 14695981039346656037u;
static uint64_t measured_from, measured_to, own_measured, all_measured;
static uint32_t *latency_us_10;
static uint32_t samples;

static void deliver(cpg_handle_t handle, const struct cpg_name *group, uint32_t node, uint32_t pid, void *bytes, size_t len) {
    (void)handle; (void)group; (void)pid;
    if (len != SIZE) return;
    uint64_t start, number, now = now_ns();
    memcpy(&start, bytes, 8);
    memcpy(&number, (char *)bytes + 8, 8);
    all++;
    hash = (hash ^ ((uint64_t)node << 48 ^ number)) * 1099511628211u;
    int measured = measured_from && now >= measured_from && now < measured_to;
    all_measured += (uint64_t)measured;
    if (node != own_node) return;
    own++;
    own_measured += (uint64_t)measured;
    if (measured && samples < SAMPLES) latency_us_10[samples++] = (uint32_t)((now - start) / 100);
}

static void configured(cpg_handle_t handle, const struct cpg_name *group, const struct cpg_address *member, size_t count,
                       const struct cpg_address *left, size_t left_count, const struct cpg_address *joined, size_t joined_count) {
    (void)handle; (void)group; (void)member; (void)left; (void)left_count; (void)joined; (void)joined_count;
    members = count;
}

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double at(double share) {
    return samples ? latency_us_10[(uint32_t)((samples - 1) * share)] / 10.0 : 0.0;
}

/* Processor time of a process in microseconds, in ticks of 10 ms. */
static double used_us(const char *pid) {
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t len = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[len] = 0;
    char *rest = strrchr(line, ')');
    unsigned long long user = 0, system = 0;
    if (!rest || sscanf(rest + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) != 2) return 0;
    return (double)(user + system) * 1e6 / (double)sysconf(_SC_CLK_TCK);
}

int main(int argc, char **argv) {
    if (argc != 7) return fprintf(stderr, "cpg GROUP NODES WINDOW RATE SECONDS DAEMON\n"), 2;
    size_t nodes = strtoul(argv[2], 0, 10);
    uint64_t window = strtoull(argv[3], 0, 10);
    double rate = strtod(argv[4], 0), seconds = strtod(argv[5], 0);
    latency_us_10 = malloc(sizeof *latency_us_10 * SAMPLES);
    if (!latency_us_10) return 1;

    cpg_callbacks_t callbacks = {.cpg_deliver_fn = deliver, .cpg_confchg_fn = configured};
    cpg_handle_t handle;
    cs_error_t error = cpg_initialize(&handle, &callbacks);
    if (error != CS_OK) return fprintf(stderr, "cpg_initialize: %d\n", error), 1;
    struct cpg_name group = {.length = (uint32_t)strlen(argv[1])};
    memcpy(group.value, argv[1], group.length);
    error = cpg_join(handle, &group);
    if (error != CS_OK) return fprintf(stderr, "cpg_join: %d\n", error), 1;
    int fd;
    if (cpg_fd_get(handle, &fd) != CS_OK || cpg_local_get(handle, &own_node) != CS_OK) return 1;

    struct pollfd wait = {.fd = fd, .events = POLLIN};
    uint64_t begun = now_ns();
    while (members < nodes && now_ns() - begun < 20000000000u) {
        poll(&wait, 1, 20);
        cpg_dispatch(handle, CS_DISPATCH_ALL);
    }
    if (members < nodes) return fprintf(stderr, "%zu of %zu members\n", members, nodes), 1;

    /* A quarter as a warm-up, then the measured time. */
    uint64_t start = now_ns(), sent = 0, refused = 0;
    uint64_t gap = rate > 0 ? (uint64_t)(1e9 / rate) : 0;
    struct rusage before = {0}, after;
    measured_from = start + (uint64_t)(seconds * 0.25e9);
    measured_to = measured_from + (uint64_t)(seconds * 1e9);
    int warm = 0;
    double daemon = 0;
    while (now_ns() < measured_to) {
        if (!warm && now_ns() >= measured_from) warm = !getrusage(RUSAGE_SELF, &before), daemon = used_us(argv[6]);
        uint64_t now = now_ns(), due = gap ? start + sent * gap : now;
        int more = gap ? due <= now : sent - own < window;
        if (more) {
            unsigned char bytes[SIZE] = {0};
            memcpy(bytes, &due, 8);
            memcpy(bytes + 8, &sent, 8);
            struct iovec part = {.iov_base = bytes, .iov_len = SIZE};
            error = cpg_mcast_joined(handle, CPG_TYPE_AGREED, &part, 1);
            if (error == CS_OK) { sent++; if (sent % 64) continue; }
            else if (error == CS_ERR_TRY_AGAIN) refused++;
            else return fprintf(stderr, "cpg_mcast_joined: %d\n", error), 1;
        }
        int patience = !gap ? (sent - own < window ? 0 : 10) : (due > now + 1000000 ? (int)((due - now) / 1000000) : 0);
        if (poll(&wait, 1, patience) > 0) cpg_dispatch(handle, CS_DISPATCH_ALL);
    }
    getrusage(RUSAGE_SELF, &after);
    daemon = used_us(argv[6]) - daemon;
    begun = now_ns();
    while (own < sent && now_ns() - begun < 3000000000u) {
        if (poll(&wait, 1, 20) > 0) cpg_dispatch(handle, CS_DISPATCH_ALL);
    }
    qsort(latency_us_10, samples, sizeof *latency_us_10, by_value);
    double cpu = (after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1e6
               + (after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_stime.tv_usec);
    printf("{\"own\":%llu,\"all\":%llu,\"per_s\":%.1f,\"cpu_us\":%.0f,\"daemon_cpu_us\":%.0f,\"p50_us\":%.1f,\"p90_us\":%.1f,\"p99_us\":%.1f,"
           "\"refused\":%llu,\"missing\":%llu,\"hash\":\"%016llx\"}\n",
           (unsigned long long)own_measured, (unsigned long long)all_measured, (double)all_measured / seconds, cpu, daemon,
           at(0.5), at(0.9), at(0.99), (unsigned long long)refused, (unsigned long long)(sent - own),
           (unsigned long long)hash);
    fflush(stdout);
    cpg_leave(handle, &group);
    cpg_finalize(handle);
    return 0;
}
