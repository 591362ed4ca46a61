/* Work that a pool of threads does in parts. */
#ifndef QFW_HOST_THREADS_H
#define QFW_HOST_THREADS_H

#include "engine/engine.h"

/* Parts of a job for each thread. More would let a free thread help one that is held up, but with rows
 * that lie in the other's caches. */
enum { QFW_THREAD_PARTS = 1 };

/* Part number `part` of a job, by thread number `thread`, 0 being the caller's. */
typedef qfw_status qfw_part_fn(const void *job, uint32_t part, uint32_t thread);

/* The threads themselves: host/threads_posix.c, or none. */
typedef struct qfw_crew qfw_crew;

/* At the start of the caller's memory; the crew, scratch and results lie behind it. */
struct qfw_host_pool {
    qfw_kernels table; /* first: the kernels that a call has are its pool */
    const qfw_kernels *kernels;
    qfw_op_line lines[QFW_OP_COUNT];
    qfw_op_fn *whole[QFW_OP_COUNT], *split[QFW_OP_COUNT]; /* by number; NULL: it is not split */
    qfw_ops ops;
    uint32_t threads;
    ptrdiff_t least; /* work that is worth a split: elements, or QFW_SPLIT_PRODUCTS products each */
    size_t splits;   /* how many were */
    qfw_crew *crew;
    uint8_t *scratch, *results, *arenas;
    size_t scratch_bytes; /* of each thread but the caller's */
    size_t result_bytes;  /* of each part */
    size_t arena_bytes;   /* of each part but the first */
    uint8_t *apart;       /* of each tensor: a qfw_apart */
    const qfw_plan_header *header;
};

/* Bytes of a crew; 0 where there are no threads. */
size_t qfw_crew_bytes(void);

/* Starts threads - 1 threads, in memory that is aligned to 64 bytes. */
qfw_status qfw_crew_open(qfw_crew *crew, uint32_t threads);
void qfw_crew_close(qfw_crew *crew);

/* Whether the crew is the caller's until qfw_crew_leave; false: it is at work for another. */
bool qfw_crew_enter(qfw_crew *crew);
void qfw_crew_leave(qfw_crew *crew);

/* Does all parts, at most QFW_THREAD_PARTS for each thread; the largest status of theirs. */
qfw_status qfw_crew_run(qfw_crew *crew, uint32_t parts, qfw_part_fn *run, const void *job);

/* What a loop that waits does at each turn. */
void qfw_host_pause(void);

/* Where rows of a tensor are: in the net's arena; in those of the parts; in both. */
typedef enum { QFW_TOGETHER = 0, QFW_APART, QFW_BOTH } qfw_apart;

/* ---- host/split.c ---- */

/* Puts pooled operations in place of all, and what they are made of beside. */
void qfw_split_ops(qfw_host_pool *pool);

/* Bytes that a split of an operation takes at most: of each thread, of each part. */
typedef struct {
    size_t scratch, results;
} qfw_needs;

qfw_needs qfw_split_needs(const qfw_plan_header *header, const qfw_plan_op *op);

/* Brings the rows of a tensor together in the net's arena. */
void qfw_bring_together(qfw_host_pool *pool, uint16_t tensor, const qfw_operand *x, ptrdiff_t rows);

#endif
