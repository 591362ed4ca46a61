/* Sums of more rows than a plan's tile has, which is as small as a device needs it. */
#ifndef QFW_ENGINE_TILES_H
#define QFW_ENGINE_TILES_H

#include "engine/engine.h"

enum { QFW_TILE_ROOM = QFW_DIRECT ? 1 : 8192 };

/* Rows of `in` sums at once: those of a tile or, if a row needs nothing beside its sums, of as many
 * tiles as there is room for. */
static inline ptrdiff_t qfw_rows_at_once(ptrdiff_t in, ptrdiff_t tile, bool apart)
{
    const ptrdiff_t tiles = QFW_TILE_ROOM / (in * tile);
    return QFW_DIRECT || !apart || tiles < 2 ? tile : tiles * tile;
}

/* `to` as it would be after tile by tile, the last of which may have fewer rows: n > tile rows stand
 * at `sums`. */
static inline void qfw_leave_tile(const int32_t *sums, ptrdiff_t n, ptrdiff_t in, ptrdiff_t tile,
                                  int32_t *to)
{
    const size_t bytes = sizeof *to * (size_t)in;
    const ptrdiff_t last = (n - 1) % tile + 1;
    memcpy(to, sums + (n - last) * in, (size_t)last * bytes);
    memcpy(to + last * in, sums + (n - tile) * in, (size_t)(tile - last) * bytes);
}

#endif
