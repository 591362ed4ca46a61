/* All rows of int8 codes that an outer product moves, row after row: qfw_move_row of moved.h. */
#ifndef QFW_KERNELS_ROWS_H
#define QFW_KERNELS_ROWS_H

#include "kernels/moved.h"

/* Offsets 0, 4, ... in instructions. */
typedef struct {
    const int8_t *e, *end;   /* errors of rows, from the next one on */
    const int8_t *second;    /* behind that of the first row */
    size_t row;              /* elements of a row, a multiple of four */
    const float *scale;      /* the first row's; of the next ones `next` bytes apart, 0 or 4 */
    size_t next;             /* they are normal */
    uint32_t mant;           /* of `top`, which over a row's scale is its slope: 24 bits */
    int32_t exp;             /* and its exponent field plus 17, or far below 0 where top is 0 */
    qfw_key key;             /* of the codes' words */
    int8_t *to;              /* the first row's codes */
    const uint32_t *fours;   /* what qfw_fours_of makes of x */
    const int8_t *looked_at; /* behind the error of a row whose scale may be 1 */
} qfw_outer_rows;

/* Why rows stop; e is behind the error of the row that is told of. */
typedef enum {
    QFW_ROWS_END,
    QFW_ROW_LEFT, /* it moved, and a value was outside -128 .. 127 */
    QFW_ROW_ONE,  /* its scale is 1: it did not move */
    QFW_ROW_FAR   /* its slope does not suit instructions: it did not move */
} qfw_rows_stop;

/* Fours of a row of x that are not 0. Each has three words: elements 0 and 2, 1 and 3, 2^8 times them, as
 * numbers of 16 bits, and the number of the first. Three more are behind them; so a row of 12 elements or
 * more needs no more bytes than it has as int32. */
#define QFW_FOURS_END (UINT32_C(1) << 31) /* behind the last one, for a number */
enum { QFW_FOURS_LEAST = 12 };

/* n is a multiple of four; false: all are 0. */
bool qfw_fours_of(const int8_t *x, size_t n, uint32_t *fours);

/* Rows until one of which something is to be told. What has an error of 0 stays. */
qfw_rows_stop qfw_move_rows(qfw_outer_rows *rows);

/* Whether that is faster than row by row. */
#if defined(__ARM_FEATURE_DSP)
enum { QFW_HAS_OUTER_ROWS = 1 };
#else
enum { QFW_HAS_OUTER_ROWS = 0 };
#endif

#endif
