/* A crew of POSIX threads. A job is done when all its parts are; whoever is free takes the next one,
 * so that a thread which sleeps, is held up or does not exist any more (after a fork) costs time only.
 *
 * How a part is taken: the job's number goes up, and part k of job j is marked 2 j, open. A thread
 * reads the number, then the job, then changes the mark from 2 j to 2 j + 1. Only one can, and if it
 * could, job j was not over when it was read, so that what it read is that job's. */
#define _POSIX_C_SOURCE 200809L

#include "host/threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST_PARTS = QFW_THREAD_PARTS * QFW_HOST_THREADS,
    SPIN_NS = 200000, /* longer than what lies between two steps, shorter than a user's patience */
    LOOKS = 64,       /* turns of a spinning thread between two looks at the clock */
    POLITE = 4096     /* turns after which one that waits gives its core away */
};

typedef struct {
    qfw_crew *crew;
    uint32_t number;
    pthread_t id;
} worker;

struct qfw_crew {
    /* what all read */
    size_t number; /* of the job */
    uint32_t parts;
    qfw_part_fn *run;
    const void *job;
    size_t mark[MOST_PARTS];
    /* what all write */
    uint32_t done, status, sleeping;
    uint32_t busy, stop;
    uint32_t threads;
    pid_t process;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    worker workers[QFW_HOST_THREADS];
};

#define GET(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define PUT(x, value) __atomic_store_n(&(x), (value), __ATOMIC_RELAXED)

size_t qfw_crew_bytes(void)
{
    return sizeof(qfw_crew);
}

/* ---- parts ---- */

static void report(qfw_crew *c, uint32_t status)
{
    uint32_t known = GET(c->status);
    while (known < status && !__atomic_compare_exchange_n(&c->status, &known, status, false,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

/* Parts of job `number`: those that are thread `at`'s before others, as their data may be near. */
static void work(qfw_crew *c, size_t number, uint32_t at)
{
    const uint32_t parts = GET(c->parts);
    qfw_part_fn *run = GET(c->run);
    const void *job = GET(c->job);
    for (uint32_t i = 0; i < parts; i++) {
        const uint32_t k = (at * parts / c->threads + i) % parts;
        size_t open = 2 * number;
        if (__atomic_compare_exchange_n(&c->mark[k], &open, open + 1, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
            report(c, (uint32_t)run(job, k, at));
            __atomic_fetch_add(&c->done, 1, __ATOMIC_RELEASE);
        }
    }
}

/* ---- workers ---- */

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool has_news(const qfw_crew *c, size_t seen)
{
    return __atomic_load_n(&c->number, __ATOMIC_SEQ_CST) != seen || GET(c->stop) != 0;
}

/* Until there is another job, or none any more. */
static void await(qfw_crew *c, size_t seen)
{
    const int64_t end = now() + SPIN_NS;
    for (uint32_t i = 1; !has_news(c, seen); i++) {
        qfw_host_pause();
        if (i % LOOKS == 0 && now() > end) {
            break;
        }
    }
    if (has_news(c, seen)) {
        return;
    }
    pthread_mutex_lock(&c->lock);
    __atomic_fetch_add(&c->sleeping, 1, __ATOMIC_SEQ_CST);
    while (!has_news(c, seen)) {
        pthread_cond_wait(&c->wake, &c->lock);
    }
    __atomic_fetch_sub(&c->sleeping, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&c->lock);
}

static void wake_all(qfw_crew *c)
{
    pthread_mutex_lock(&c->lock);
    pthread_cond_broadcast(&c->wake);
    pthread_mutex_unlock(&c->lock);
}

static void *serve(void *of)
{
    const worker *w = of;
    qfw_crew *c = w->crew;
    const uint32_t mode = qfw_host_float_enter();
    size_t seen = 0;
    for (;;) {
        await(c, seen);
        if (GET(c->stop) != 0) {
            break;
        }
        seen = __atomic_load_n(&c->number, __ATOMIC_ACQUIRE);
        work(c, seen, w->number);
    }
    qfw_host_float_leave(mode);
    return NULL;
}

/* Ends those that were started: the first `count`. */
static void dismiss(qfw_crew *c, uint32_t count)
{
    PUT(c->stop, 1);
    wake_all(c);
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(c->workers[i].id, NULL);
    }
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->lock);
}

qfw_status qfw_crew_open(qfw_crew *c, uint32_t threads)
{
    sigset_t every, before;
    uint32_t count = 0;
    memset(c, 0, sizeof *c);
    c->threads = threads;
    c->process = getpid();
    if (pthread_mutex_init(&c->lock, NULL) != 0) {
        return QFW_E_THREADS;
    }
    if (pthread_cond_init(&c->wake, NULL) != 0) {
        pthread_mutex_destroy(&c->lock);
        return QFW_E_THREADS;
    }
    sigfillset(&every); /* signals are for the program's own threads */
    pthread_sigmask(SIG_SETMASK, &every, &before);
    for (; count + 1 < threads; count++) {
        worker *w = &c->workers[count];
        w->crew = c;
        w->number = count + 1;
        if (pthread_create(&w->id, NULL, serve, w) != 0) {
            break;
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (count + 1 < threads) {
        dismiss(c, count);
        return QFW_E_THREADS;
    }
    return QFW_OK;
}

void qfw_crew_close(qfw_crew *c)
{
    if (c->process == getpid()) { /* else it is a fork's copy, and there are no threads */
        dismiss(c, c->threads - 1);
    }
}

/* ---- the caller ---- */

bool qfw_crew_enter(qfw_crew *c)
{
    return __atomic_exchange_n(&c->busy, 1, __ATOMIC_ACQUIRE) == 0;
}

void qfw_crew_leave(qfw_crew *c)
{
    __atomic_store_n(&c->busy, 0, __ATOMIC_RELEASE);
}

qfw_status qfw_crew_run(qfw_crew *c, uint32_t parts, qfw_part_fn *run, const void *job)
{
    const size_t number = GET(c->number) + 1;
    PUT(c->parts, parts);
    PUT(c->run, run);
    PUT(c->job, job);
    PUT(c->done, 0);
    PUT(c->status, (uint32_t)QFW_OK);
    for (uint32_t k = 0; k < parts; k++) {
        PUT(c->mark[k], 2 * number);
    }
    __atomic_store_n(&c->number, number, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&c->sleeping, __ATOMIC_SEQ_CST) != 0 && c->process == getpid()) {
        wake_all(c);
    }
    work(c, number, 0);
    for (uint32_t i = 1; __atomic_load_n(&c->done, __ATOMIC_ACQUIRE) != parts; i++) {
        qfw_host_pause();
        if (i % POLITE == 0) {
            sched_yield();
        }
    }
    return (qfw_status)GET(c->status);
}
