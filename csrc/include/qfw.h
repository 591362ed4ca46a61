/* qfw: the public C99 interface of the core.
 *
 * This file is also the cffi cdef (the build runs it through `cc -E -DQFW_CDEF`): no function
 * bodies, integer constants are enums, and what cffi does not parse stands inside #ifndef QFW_CDEF.
 *
 * The core owns nothing: no heap, no globals, no I/O. What can fail returns a status and then has
 * written nothing that a caller may rely on. docs/numerics.md defines every number. */
#ifndef QFW_H
#define QFW_H

#ifndef QFW_CDEF /* cffi knows the stdint and stddef names */
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#endif

/* ---- status ---- */

typedef enum qfw_status {
    QFW_OK = 0,
    QFW_E_NULL,       /* a pointer that is needed is NULL */
    QFW_E_SIZE,       /* a size is negative, two shapes differ, or a size overflows */
    QFW_E_GROUP,      /* a group is not positive, or ragged where exact was asked */
    QFW_E_KIND,       /* an enumerator is unknown or not allowed here */
    QFW_E_BITS,       /* a width is outside its format's range */
    QFW_E_CONTAINER,  /* a container is unknown or narrower than the width */
    QFW_E_RANGE,      /* qmax < qmin, or the code range is wider than the code's type */
    QFW_E_SCALE,      /* a scale is not positive and normal, or no power of two where it must be */
    QFW_E_ZERO_POINT, /* a zero point is outside its format's range */
    QFW_E_NONFINITE,  /* the data hold a NaN or an infinity */
    QFW_E_LABEL,      /* a label is no class */
    QFW_E_MAGIC,      /* these bytes are no plan, or no state */
    QFW_E_VERSION,    /* a plan or state of another version */
    QFW_E_CRC,        /* the bytes of the plan or the state were changed */
    QFW_E_PLAN,       /* a field of the plan is out of range or contradicts another */
    QFW_E_ARENA,      /* the arena is too small or not aligned to 16 bytes */
    QFW_E_ROWS,       /* no rows, or more than the plan was compiled for */
    QFW_E_ORDER,      /* backward without forward, or update without backward */
    QFW_E_FLOAT,      /* the machine's float arithmetic is not IEEE single precision */
    QFW_E_NORM,       /* the norm of the gradients is a NaN or an infinity */
    QFW_E_BATCH,      /* one value a channel, which has no variance */
    QFW_E_STATE,      /* a state of another plan, or of other constants than these */
    QFW_E_EMPTY,      /* no slot of the flash area holds a state of this net */
    QFW_E_FLASH,      /* the flash area was not written, or does not read back */
    QFW_E_FEATURE,    /* this core was compiled without what is asked for */
    QFW_E_THREADS     /* the system did not start as many threads */
} qfw_status;

/* One sentence, static. */
const char *qfw_status_text(qfw_status status);

/* "major.minor.patch" of the core, static. */
const char *qfw_version(void);

/* ---- kernels ---- */

/* The kernels a call may use. A table changes speed, never bits. */
typedef struct qfw_kernels qfw_kernels;

/* Plain C99, on every target. */
const qfw_kernels *qfw_kernels_portable(void);

/* The table's name: "portable", "avx2", "avx512". */
const char *qfw_kernels_name(const qfw_kernels *kernels);

/* ---- the generator of stochastic rounding ---- */

typedef struct qfw_key {
    uint32_t k0, k1;
} qfw_key;

void qfw_make_key(uint32_t seed, uint32_t step, uint32_t tensor, qfw_key *key);

/* out[i] = draw(first + i): independent words. */
void qfw_draws(const qfw_key *key, uint32_t first, size_t n, uint32_t *out);

/* out[i] = u of element first + i: what rounding uses, pairwise independent. */
void qfw_uniforms(const qfw_key *key, uint64_t first, size_t n, uint32_t *out);

typedef enum qfw_rounding { QFW_HALF_AWAY = 0, QFW_HALF_EVEN, QFW_STOCHASTIC } qfw_rounding;

/* ---- tensors ---- */

/* A tensor seen as [outer][axis][inner]. Along axis, `group` consecutive indices share a scale, the
 * last group may be short (exact != 0 refuses that). shared != 0: all outer use one set of scales;
 * else each has its own. Scales: (shared ? 1 : outer) * ceil(axis / group), in that order. */
typedef struct qfw_layout {
    ptrdiff_t outer, axis, inner, group;
    uint8_t shared, exact;
} qfw_layout;

/* Elements and scales of a layout, or why there are none. */
qfw_status qfw_layout_check(const qfw_layout *layout, ptrdiff_t *elements, ptrdiff_t *scales);

/* INDEX (int32 class numbers), BYTES (scratch) and PICK (which element of a window) exist in plans
 * only. */
typedef enum qfw_kind {
    QFW_FLOAT32 = 0,
    QFW_SYM,
    QFW_ASYM,
    QFW_INDEX,
    QFW_BYTES,
    QFW_PICK
} qfw_kind;

/* container: 0 packed, else 8, 16 or 32 bits an element. bits: Sym 2..16, or 32 in a 32-bit
 * container (an accumulator); Asym 1..16; Float32 32 in 32. */
typedef struct qfw_format {
    uint8_t kind, bits, container, pow2;
} qfw_format;

qfw_status qfw_format_check(const qfw_format *format);

/* scale: one float32 a run, unused for Float32. zero_point: one a run, Asym only. */
typedef struct qfw_tensor {
    qfw_format format;
    qfw_layout layout;
    void *codes;
    float *scale;
    uint16_t *zero_point;
} qfw_tensor;

typedef struct qfw_encoding {
    int32_t rounding;
    int32_t dynamic; /* != 0: find dst's scales (and zero points) and write them; 0: use what stands
                        there */
    qfw_key key;     /* for QFW_STOCHASTIC */
    uint64_t first;  /* the index of codes[0] in its tensor's storage order: 0 for a whole one */
} qfw_encoding;

/* Encodes src as dst: between any two formats, layouts and containers of the same number of
 * elements. *saturated counts the codes that the clamp changed. Reading and writing must not
 * overlap. On an error dst's contents are undefined. */
qfw_status qfw_convert(const qfw_kernels *kernels, const qfw_tensor *src, const qfw_tensor *dst,
                       const qfw_encoding *how, uint64_t *saturated);

/* n codes of `bits` bits (1..16), as int16 or, up to 8 bits, int8 (wide != 0: int16; the sign is
 * ignored), to ceil(n*bits/8) bytes and back; is_signed: codes are two's complement. */
qfw_status qfw_pack(const void *codes, int32_t wide, size_t n, int32_t bits, uint8_t *packed);
qfw_status qfw_unpack(const uint8_t *packed, size_t n, int32_t bits, int32_t is_signed,
                      int32_t wide, void *codes);

/* ---- the affine quantize family ---- */

typedef enum qfw_real { QFW_F32 = 0, QFW_F64, QFW_F16, QFW_BF16 } qfw_real;
typedef enum qfw_int { QFW_I8 = 0, QFW_U8, QFW_I16, QFW_U16, QFW_I32 } qfw_int;
typedef enum qfw_in_range { QFW_INCLUSIVE = 0, QFW_STRICT } qfw_in_range;

typedef enum qfw_affine_op {
    QFW_QUANTIZE = 0,          /* in: x        out: codes */
    QFW_DEQUANTIZE,            /* in: codes    out: x */
    QFW_FAKE_QUANTIZE,         /* in: x        out: x */
    QFW_QUANTIZE_BACKWARD,     /* in: dy, x or mask   out: dx */
    QFW_DEQUANTIZE_BACKWARD,   /* in: dy       out: dy * s */
    QFW_FAKE_QUANTIZE_BACKWARD /* in: dy, x or mask  out: dx */
} qfw_affine_op;

/* What to do: outer, axis, group (layout), the code range, the element types and the rules. */
typedef struct qfw_affine {
    qfw_layout layout;
    int32_t op;
    int32_t real;     /* qfw_real of x, dy, dx */
    int32_t code;     /* qfw_int of the codes; ignored where there are none */
    int32_t rounding; /* qfw_rounding */
    int32_t in_range; /* qfw_in_range */
    int32_t qmin, qmax;
    qfw_key key;
} qfw_affine;

/* The arrays of a run, in storage order. scale: float, or double if real is QFW_F64; zero_point
 * NULL: all 0. mask: ceil(n/8) bytes of in-range bits. out may be x or dy itself where the types
 * agree; otherwise nothing overlaps. */
typedef struct qfw_affine_data {
    const void *x;  /* x, or the codes of QFW_DEQUANTIZE; a backward with mask_in needs none */
    const void *dy; /* the backwards */
    const uint8_t *mask_in; /* the backwards, instead of x */
    const void *scale;      /* not needed by QFW_FAKE_QUANTIZE_BACKWARD with mask_in */
    const int32_t *zero_point;
    void *out;
    uint8_t *mask_out; /* may be NULL; QFW_QUANTIZE and QFW_FAKE_QUANTIZE */
    int32_t stream;    /* a hint, != 0: out is larger than the caches and not fresh memory */
} qfw_affine_data;

qfw_status qfw_affine_check(const qfw_affine *affine);

/* Bytes of scratch that a run needs: none. */
qfw_status qfw_affine_workspace(const qfw_affine *affine, size_t *bytes);

/* Checks, then runs. Scales are checked before anything is written. */
qfw_status qfw_affine_run(const qfw_kernels *kernels, const qfw_affine *affine,
                          const qfw_affine_data *data);

/* The name of the kernel that qfw_affine_run would use, static; NULL if a check fails. */
const char *qfw_affine_kernel(const qfw_kernels *kernels, const qfw_affine *affine,
                              const qfw_affine_data *data);

/* Scales (float, or double for QFW_F64) and zero points of x for codes of `bits` bits: symmetric
 * (-Q..Q, zero points 0) or asymmetric (0..2^bits-1). */
qfw_status qfw_affine_params(const qfw_kernels *kernels, const qfw_layout *layout, int32_t real,
                             int32_t bits, int32_t symmetric, const void *x, void *scale,
                             int32_t *zero_point);

/* QFW_E_NONFINITE if one of the n numbers at x is a NaN or an infinity. */
qfw_status qfw_check_finite(const qfw_kernels *kernels, const void *x, size_t n, int32_t real);

/* ---- primitives of a step ---- */

/* out(i, j) = sum over p < k of a(i, p) * b(p, j), out being m x n in row order.
 * a(i, p) = a[i * a_row + p * a_col] and b(p, j) = b[p * b_row + j * b_col], strides in elements.
 * width: 8 or 16 (signed integers, each operand its own), or 32 for both (floats).
 * add: 0 the sums are the result; 1 they go on from what is there. */
typedef struct qfw_gemm {
    const void *a, *b;
    int32_t a_width, b_width;
    size_t m, n, k;
    size_t a_row, a_col, b_row, b_col;
    int32_t add;
} qfw_gemm;

/* Integers; the caller has proved that no sum leaves int32. */
qfw_status qfw_gemm_s32(const qfw_kernels *kernels, const qfw_gemm *gemm, int32_t *out);

/* Floats, added in ascending p from +0. */
qfw_status qfw_gemm_f32(const qfw_kernels *kernels, const qfw_gemm *gemm, float *out);

/* Softmax and cross-entropy of logits z (rows x classes), the mean over the rows (docs/numerics.md
 * section 15): the error of the logits and the loss. Labels are checked before anything is written;
 * a row with the label -100 does not count, QFW_E_LABEL if none does.
 * rows and classes are at most 2^24 and 2^16. s16: the errors' one scale and their absmax too. */
qfw_status qfw_cross_entropy_s16(const int16_t *z, float scale, const int32_t *labels, size_t rows,
                                 size_t classes, int32_t *error, float *error_scale,
                                 uint32_t *absmax, float *loss);
qfw_status qfw_cross_entropy_f32(const float *z, const int32_t *labels, size_t rows, size_t classes,
                                 float *error, float *loss);

/* ---- plans: docs/format.md ---- */

enum {
    QFW_PLAN_MAGIC = 0x50574651, /* "QFWP" */
    QFW_PLAN_VERSION = 1,
    QFW_ALIGN = 16,               /* offsets are multiples of it, and so is the arena's address */
    QFW_NET_BYTES = 128,          /* at the start of the arena, for the core itself */
    QFW_STATE_MAGIC = 0x53574651, /* "QFWS" */
    QFW_STATE_VERSION = 1,
    QFW_NO_TENSOR = 65535, /* an operand that is not there */
    QFW_OP_TENSORS = 8,
    QFW_OP_PARAMS = 15
};

typedef enum qfw_space { QFW_ARENA = 0, QFW_CONST, QFW_IO } qfw_space;

/* Parameters, gradients and state last; wires, errors and scratch live within a step. */
typedef enum qfw_role {
    QFW_PARAMETER = 0,
    QFW_GRADIENT,
    QFW_STATE,
    QFW_WIRE,
    QFW_ERROR,
    QFW_SCRATCH
} qfw_role;

typedef enum qfw_range { QFW_DYNAMIC = 0, QFW_FIXED, QFW_HINDSIGHT } qfw_range;

/* Which size of a tensor counts the rows of a step. */
typedef enum qfw_rows { QFW_NO_ROWS = 0, QFW_ROWS_OUTER, QFW_ROWS_AXIS } qfw_rows;

typedef enum qfw_section {
    QFW_FORWARD = 0,
    QFW_OUTPUT,
    QFW_BACKWARD,
    QFW_UPDATE,
    QFW_INFER,
    QFW_SECTIONS
} qfw_section;

typedef struct qfw_plan_header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint32_t plan_bytes, crc;
    uint32_t arena_bytes, const_bytes, batch, seed; /* batch: the most rows of a walk */
    uint32_t tensors, ops;
    uint32_t first[5], count[5]; /* of each section's operations */
    uint16_t input, labels, output, loss;
    float lr;
    uint32_t micro_batches; /* the most of a step; 0: 1 */
    uint32_t windows;
    uint32_t reserved[7];
} qfw_plan_header;

typedef struct qfw_plan_tensor {
    uint8_t space, role, kind, bits, container, pow2, range, rounding;
    uint8_t rows, shared, reserved[2];
    uint32_t outer, axis, inner, group;
    uint32_t codes, scale, zero_point, absmax;
    uint32_t stream;
    float limit;
} qfw_plan_tensor;

typedef struct qfw_plan_op {
    uint16_t kernel, flags;
    uint16_t tensor[8];
    uint32_t param[15];
} qfw_plan_op;

/* How a kernel goes over an image: position (y, x) of the result and tap (u, v) of the kernel meet
 * at (y * stride_h - pad_h + u * dilation_h, x * stride_w - pad_w + v * dilation_w) of the image. */
typedef struct qfw_plan_window {
    uint32_t in_h, in_w, out_h, out_w;
    uint16_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    uint16_t groups, reserved[3];
} qfw_plan_window;

/* Where a plan is wrong: the operation and the tensor, -1 where it is neither, and the field or
 * rule, a few static words. */
typedef struct qfw_fault {
    int32_t op, tensor;
    const char *field;
} qfw_fault;

/* What an operation takes at each of its eight places: bits of qfw_place. */
typedef enum qfw_place {
    QFW_AS_F32 = 1,
    QFW_AS_S8 = 2,   /* Sym in 8-bit slots */
    QFW_AS_S16 = 4,  /* Sym in 16-bit slots */
    QFW_AS_S32 = 8,  /* an accumulator */
    QFW_AS_SYM = 16, /* any other Sym */
    QFW_AS_ASYM = 32,
    QFW_AS_INDEX = 64, /* labels */
    QFW_AS_BYTES = 128,
    QFW_MAY_LACK = 256,
    QFW_IS_READ = 512,
    QFW_IS_WRITTEN = 1024,
    QFW_AS_PICK = 2048 /* which element of a window it was */
} qfw_place;

/* The name of operation `kernel`, static, and what it takes; NULL if there is none. */
const char *qfw_op_name(uint32_t kernel, uint16_t places[8]);

/* Verifies every field of every operation against the spaces, the formats and the operations there
 * are: a plan that passes cannot reach outside its spaces, whatever the data. */
qfw_status qfw_check(const void *plan, size_t bytes, qfw_fault *fault);

/* ---- a net: a plan at work ---- */

typedef struct qfw_ops qfw_ops;

/* Every operation there is. */
const qfw_ops *qfw_ops_all(void);

/* Read in place; must outlive the net. plan and constants are aligned to 16 bytes. state: what the
 * net begins with, a qfw_state_header and what follows it, at any address; NULL: nothing. */
typedef struct qfw_image {
    const void *plan;
    size_t plan_bytes;
    const void *constants;
    size_t const_bytes;
    const qfw_kernels *kernels;
    const qfw_ops *ops;
    const void *state;
    size_t state_bytes; /* more than the state takes is no fault */
} qfw_image;

typedef struct qfw_net qfw_net;

/* What a net keeps besides tensors. */
typedef struct qfw_progress {
    uint32_t step;    /* updates since the beginning: the generator's step */
    uint32_t updates; /* updates since the optimizer's state was made */
    float lr;
    uint32_t micro; /* micro-batches whose gradients wait for the update: the number of the next */
} qfw_progress;

/* The beginning of a net's state: docs/format.md section 10. The bytes of the arena that last
 * follow it. */
typedef struct qfw_state_header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint32_t sequence; /* of two slots the newer has the next number, mod 2^32 */
    uint32_t plan_crc, const_crc;
    uint32_t origin; /* crc of the state that the net was opened with; 0: none */
    uint32_t payload_bytes, payload_crc;
    qfw_progress progress;
    uint32_t gradients; /* 1: a backward has run, so that an update may */
    uint32_t reserved[2];
    uint32_t crc; /* of all before it */
} qfw_state_header;

/* The caller's buffers. x: rows of the input; y: labels or targets; out: rows of the output. What a
 * section does not use may be NULL. step_rows: the rows of the whole step, over which the loss is
 * the mean; 0: those of a step of full micro-batches, rows * micro_batches. */
typedef struct qfw_io {
    const void *x, *y;
    void *out;
    uint32_t step_rows;
} qfw_io;

/* Writes to *bytes the arena this plan needs. */
qfw_status qfw_arena_size(const qfw_image *image, size_t *bytes);

/* Emplaces a net in `arena`: verifies magic, version, sizes, CRC and the machine's floats, zeroes
 * the arena and sets every stored scale to 1. The full qfw_check is the caller's choice.
 * With a state, verifies every bit of it and of the constants, and goes on from there. */
qfw_status qfw_open(void *arena, size_t arena_bytes, const qfw_image *image, qfw_net **net);

qfw_status qfw_get_progress(const qfw_net *net, qfw_progress *progress);
/* micro = 0 forgets gradients that wait. */
qfw_status qfw_set_progress(qfw_net *net, const qfw_progress *progress);

/* What was seen of a tensor in codes (docs/numerics.md section 27), in a table of the caller's with
 * a record for each tensor of the plan; table NULL: off, as a net is opened. */
typedef struct qfw_counter {
    uint64_t written, saturated, asked, unmoved, dead, doubled, halved;
    float least, most; /* 0: no scale yet */
} qfw_counter;
qfw_status qfw_set_counters(qfw_net *net, qfw_counter *table, size_t records);

/* Operations first .. first + count - 1 over `rows` rows; *done counts those that ran. */
qfw_status qfw_walk(qfw_net *net, const qfw_io *io, uint32_t rows, uint32_t first, uint32_t count,
                    uint32_t *done);

/* A whole section. Order: forward, backward, update; output after forward. Each micro-batch has a
 * forward and a backward; a backward adds to the gradients, the first of a step begins anew. */
qfw_status qfw_run_section(qfw_net *net, qfw_section section, const qfw_io *io, uint32_t rows);

/* forward and backward of each micro-batch, update; the mean loss. rows: up to batch *
 * micro_batches, taken `batch` at a time. Gradients that wait are forgotten. */
qfw_status qfw_step(qfw_net *net, const void *x, const void *y, uint32_t rows, float *loss);

/* Inference, each row on its own: any number of rows. */
qfw_status qfw_infer(qfw_net *net, const void *x, uint32_t rows, float *out);

/* ---- states that outlast a reset: docs/format.md section 11 ---- */

enum { QFW_FLASH_UNIT = 64 };

/* Two slots, at 0 and at slot_bytes, of memory that keeps its bytes: flash, EEPROM, a file. `at`
 * counts from the beginning of slot 0. The functions return 0 when all is done, else something went
 * wrong: a slot that cannot be read holds nothing.
 * write: begins at a multiple of QFW_FLASH_UNIT, takes a multiple of it, from an address that is a
 * multiple of 4. data NULL: makes a whole slot ready to be written, once. NOR flash erases it, so a
 * slot is made of whole sectors; where bytes can be written over there is nothing to do.
 * slot_bytes: a multiple of QFW_FLASH_UNIT, at least qfw_state_size, at most 2^31. */
typedef struct qfw_flash {
    void *user; /* handed to both */
    uint32_t slot_bytes;
    int (*read)(void *user, uint32_t at, void *data, uint32_t bytes);
    int (*write)(void *user, uint32_t at, const void *data, uint32_t bytes);
} qfw_flash;

/* Writes to *bytes what a slot must have at least. */
qfw_status qfw_state_size(const qfw_image *image, size_t *bytes);

/* Writes all that lasts to the slot that is not the newest whole one, and reads it back. Between
 * steps or micro-batches. Whenever the power fails, the newest slot is whole. */
qfw_status qfw_store(const qfw_net *net, const qfw_flash *flash);

/* Goes on from the newer whole slot of a net of this image, its state included; QFW_E_EMPTY if there
 * is none, and the net stays as it is. QFW_E_FLASH: slots changed while they were read, and the net
 * is as it was opened. */
qfw_status qfw_resume(qfw_net *net, const qfw_flash *flash);

/* ---- the desktop only (csrc/host) ---- */

typedef enum qfw_isa { QFW_ISA_PORTABLE = 0, QFW_ISA_AVX2, QFW_ISA_AVX512, QFW_ISA_COUNT } qfw_isa;

/* The table of an ISA, NULL where this build or CPU has none. */
const qfw_kernels *qfw_host_kernels(qfw_isa isa);

/* The compiler that built the core, static. */
const char *qfw_host_compiler(void);
/* How many MACs of so many bits (8, 16; 32: floats) a loop of the ISA's best instruction made; or 0. */
uint64_t qfw_host_peak(qfw_isa isa, uint32_t width, uint64_t rounds);

/* Sets this thread's float mode to round-to-nearest without flush-to-zero and returns the mode it
 * had; puts a mode back. */
uint32_t qfw_host_float_enter(void);
void qfw_host_float_leave(uint32_t mode);

/* Threads for one net, in memory that the caller keeps until the pool is closed, aligned to 64 bytes.
 * A net that is opened with its kernels and its operations splits its work over them; the bits stay
 * the same. threads counts the caller's: at most QFW_HOST_THREADS. A pool serves one walk at a time,
 * others at that time go alone; so does a process that was forked from the one that opened it.
 * QFW_E_FEATURE: this build knows no threads. */
enum { QFW_HOST_THREADS = 64 };
typedef struct qfw_host_pool qfw_host_pool;
qfw_status qfw_host_pool_size(const void *plan, size_t plan_bytes, uint32_t threads, size_t *bytes);
qfw_status qfw_host_pool_open(void *memory, size_t bytes, const void *plan, size_t plan_bytes,
                              uint32_t threads, const qfw_kernels *kernels, qfw_host_pool **pool);
const qfw_kernels *qfw_host_pool_kernels(const qfw_host_pool *pool);
const qfw_ops *qfw_host_pool_ops(const qfw_host_pool *pool);
/* The work, in elements, from which on an operation is split. 0: as a pool is opened; < 0: none is. */
void qfw_host_pool_least(qfw_host_pool *pool, ptrdiff_t work);
/* Brings rows of a tensor together in the arena, where the last walk, over so many, left them apart. */
void qfw_host_pool_gather(qfw_host_pool *pool, const qfw_net *net, uint32_t tensor, uint32_t rows);
size_t qfw_host_pool_splits(const qfw_host_pool *pool); /* operations that were split so far */
void qfw_host_pool_close(qfw_host_pool *pool);

/* Finds the operands of steps of `rows` rows once, in *bytes that are kept, aligned to 64, for a net
 * that stays where it is; its plan was checked (qfw_check). memory NULL: says how many bytes. */
qfw_status qfw_host_bind(void *memory, size_t *bytes, qfw_net *net, uint32_t rows);

/* How x and y of a step differ from what qfw_step takes.
 * channels, positions: a row of x is [channels][positions], the plan's input [positions][channels];
 * channels 0: x is as it should be. labels NULL: so is y; else y is int64. */
typedef struct qfw_host_feed {
    uint32_t rows, channels, positions; /* rows: that there is room for */
    float *swapped;                     /* room for x */
    int32_t *labels;                    /* room for y */
    const void *bound;                  /* what qfw_host_bind wrote for this net, or NULL */
} qfw_host_feed;

/* qfw_step in the float mode that it needs, which is put back. QFW_E_LABEL: a label is no int32. */
qfw_status qfw_host_step(qfw_net *net, const qfw_host_feed *feed, const void *x, const void *y,
                         uint32_t rows, float *loss);

/* How often the code at origin + 2 i was entered, for i < slots, and how many bytes ran on from
 * there; `strays`: blocks elsewhere, or whose size changed. */
typedef struct qfw_host_blocks {
    uint64_t origin, slots, strays;
    uint64_t *entered;
    uint32_t *bytes;
} qfw_host_blocks;

/* Counts a block of code: the hook that an emulator (Unicorn) calls, `blocks` being its user's. */
void qfw_host_count_block(void *emulator, uint64_t address, uint32_t bytes, void *blocks);

#ifndef QFW_CDEF
#ifdef __cplusplus
}
#endif
#endif

#endif /* QFW_H */
