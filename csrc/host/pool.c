/* A pool of threads for one net: its memory, its kernels and its operations. */
#include "host/threads.h"

enum { ROOM = 64 };
enum { LEAST = 16384 }; /* below it a split gained nothing in a step */

static size_t rounded(size_t bytes)
{
    return (bytes + ROOM - 1) / ROOM * ROOM;
}

/* Where things lie, from the beginning of the pool on. */
typedef struct {
    size_t crew, apart, scratch, results, arenas, end;
    size_t arena_bytes;
    qfw_needs most;
} places;

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static places places_of(const qfw_plan_header *header, uint32_t threads)
{
    const qfw_plan_tensor *tensors = (const void *)(header + 1);
    const qfw_plan_op *ops = (const void *)(tensors + header->tensors);
    places p = {rounded(sizeof(qfw_host_pool)), 0,     0, 0, 0, 0,
                rounded(header->arena_bytes),   {0, 0}};
    const size_t parts = (size_t)QFW_THREAD_PARTS * threads;
    for (uint32_t i = 0; i < header->ops; i++) {
        const qfw_needs needs = qfw_split_needs(header, &ops[i]);
        p.most.scratch = larger(p.most.scratch, needs.scratch);
        p.most.results = larger(p.most.results, needs.results);
    }
    p.apart = p.crew + rounded(qfw_crew_bytes());
    p.scratch = p.apart + rounded(header->tensors);
    p.results = p.scratch + (threads - 1) * p.most.scratch;
    p.arenas = p.results + parts * p.most.results;
    p.end = p.arenas + (parts - 1) * p.arena_bytes;
    return p;
}

static qfw_status check(const void *plan, size_t plan_bytes, uint32_t threads)
{
    if (threads < 1 || threads > QFW_HOST_THREADS) {
        return QFW_E_SIZE;
    }
    return qfw_crew_bytes() == 0 ? QFW_E_FEATURE : qfw_check_bytes(plan, plan_bytes);
}

qfw_status qfw_host_pool_size(const void *plan, size_t plan_bytes, uint32_t threads, size_t *bytes)
{
    QFW_TRY(check(plan, plan_bytes, threads));
    *bytes = places_of(plan, threads).end;
    return QFW_OK;
}

qfw_status qfw_host_pool_open(void *memory, size_t bytes, const void *plan, size_t plan_bytes,
                              uint32_t threads, const qfw_kernels *kernels, qfw_host_pool **pool)
{
    if (memory == NULL || kernels == NULL || pool == NULL) {
        return QFW_E_NULL;
    }
    QFW_TRY(check(plan, plan_bytes, threads));
    const places p = places_of(plan, threads);
    if (bytes < p.end || (uintptr_t)memory % ROOM != 0) {
        return QFW_E_ARENA;
    }
    const qfw_ops *all = qfw_ops_all();
    uint8_t *base = memory;
    qfw_host_pool *made = memory;
    memset(memory, 0, p.arenas);
    made->table = *kernels;
    made->kernels = kernels;
    memcpy(made->lines, all->lines, all->count * sizeof *all->lines);
    made->ops.lines = made->lines;
    made->ops.count = all->count;
    qfw_split_ops(made);
    made->threads = threads;
    made->header = plan;
    qfw_host_pool_least(made, 0);
    made->crew = (qfw_crew *)(void *)(base + p.crew);
    made->scratch = base + p.scratch;
    made->results = base + p.results;
    made->arenas = base + p.arenas;
    made->apart = base + p.apart;
    made->arena_bytes = p.arena_bytes;
    made->scratch_bytes = p.most.scratch;
    made->result_bytes = p.most.results;
    QFW_TRY(qfw_crew_open(made->crew, threads));
    *pool = made;
    return QFW_OK;
}

const qfw_kernels *qfw_host_pool_kernels(const qfw_host_pool *pool)
{
    return &pool->table;
}

const qfw_ops *qfw_host_pool_ops(const qfw_host_pool *pool)
{
    return &pool->ops;
}

void qfw_host_pool_least(qfw_host_pool *pool, ptrdiff_t work)
{
    pool->least = work < 0 ? PTRDIFF_MAX : work == 0 ? LEAST : work;
}

void qfw_host_pool_gather(qfw_host_pool *pool, const qfw_net *net, uint32_t tensor, uint32_t rows)
{
    const qfw_plan_tensor *tensors = (const void *)(pool->header + 1);
    qfw_operand x;
    if (tensor >= pool->header->tensors || rows < 1 || rows > pool->header->batch ||
        tensors[tensor].space != QFW_ARENA || qfw_measure(&tensors[tensor], rows, &x) != QFW_OK) {
        return;
    }
    x.t.codes = (uint8_t *)(uintptr_t)net + x.plan->codes; /* a net lies where its arena begins */
    qfw_bring_together(pool, (uint16_t)tensor, &x, (ptrdiff_t)rows);
}

size_t qfw_host_pool_splits(const qfw_host_pool *pool)
{
    return pool->splits;
}

void qfw_host_pool_close(qfw_host_pool *pool)
{
    qfw_crew_close(pool->crew);
}
