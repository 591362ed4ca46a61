/* Training that loses its power at every possible write to its flash, one after the other: no more
 * than the step in progress is lost, and the run that goes on ends with the bytes of one that was
 * never interrupted. A suite is a network of steps.json; its cases are the interrupted runs. */
#include <string.h>

#include "base/crc.h"
#include "include/qfw.h"
#include "report.h"
#include "step.h"

enum { SECTOR = 256, AREA = 22 * SECTOR, LEAST_GRANULE = 8, ENDLESS = 1 << 30 };

/* What becomes of the granule or sector at which the power fails. */
typedef enum { UNTOUCHED, FIRST_HALF, LAST_HALF, GARBAGE, ENDS } end;

/* NOR flash has to be erased and takes a granule once; an EEPROM is written over. */
typedef enum { NOR, EEPROM, KINDS } kind;

typedef struct {
    uint8_t bytes[AREA];
    uint8_t taken[AREA / LEAST_GRANULE / 8]; /* bits: granules that were written */
    uint32_t slot_bytes, granule;
    uint32_t left; /* granules and sectors until the power fails */
    kind kind;
    end end;
    bool on, misused;
} memory;

static memory flash;

/* Whether there is power for `n` more bytes at `at`; if not, what is left of them. */
static bool powered(uint32_t at, const uint8_t *data, uint32_t n)
{
    uint32_t noise = 2463534242u + flash.left + at;
    if (flash.left > 0) {
        flash.left--;
        return true;
    }
    for (uint32_t i = 0; i < n; i++) {
        const bool changed = i < n / 2 ? flash.end == FIRST_HALF : flash.end == LAST_HALF;
        noise = noise * 1664525u + 1013904223u;
        if (flash.end == GARBAGE) {
            flash.bytes[at + i] = (uint8_t)(noise >> 24);
        } else if (changed) {
            flash.bytes[at + i] = data == NULL ? 0xFF : data[i];
        }
    }
    flash.on = false;
    return false;
}

static bool take(uint32_t at)
{
    const uint32_t i = at / LEAST_GRANULE;
    const bool was = (flash.taken[i / 8] >> i % 8 & 1) != 0;
    flash.taken[i / 8] |= (uint8_t)(1u << i % 8);
    return !was;
}

static int erase(uint32_t at, uint32_t bytes)
{
    flash.misused |= at % flash.slot_bytes != 0 || bytes != flash.slot_bytes;
    for (uint32_t i = at; flash.kind == NOR && i < at + bytes; i += SECTOR) {
        if (!powered(i, NULL, SECTOR)) {
            return 1;
        }
        memset(flash.bytes + i, 0xFF, SECTOR);
        memset(flash.taken + i / LEAST_GRANULE / 8, 0, SECTOR / LEAST_GRANULE / 8);
    }
    return 0;
}

static int flash_write(void *user, uint32_t at, const void *data, uint32_t bytes)
{
    const uint8_t *from = data;
    if (user != &flash || !flash.on || at > AREA || bytes > AREA - at) {
        flash.misused |= flash.on;
        return 1;
    }
    if (data == NULL) {
        return erase(at, bytes);
    }
    flash.misused |= at % QFW_FLASH_UNIT != 0 || bytes % QFW_FLASH_UNIT != 0 || bytes == 0 ||
                     (uintptr_t)data % 4 != 0;
    for (uint32_t i = 0; i < bytes; i += flash.granule) {
        flash.misused |= flash.kind == NOR && !take(at + i);
        if (!powered(at + i, from + i, flash.granule)) {
            return 1;
        }
        memcpy(flash.bytes + at + i, from + i, flash.granule);
    }
    return 0;
}

static int flash_read(void *user, uint32_t at, void *data, uint32_t bytes)
{
    if (user != &flash || !flash.on || at > AREA || bytes > AREA - at) {
        flash.misused |= flash.on;
        return 1;
    }
    memcpy(data, flash.bytes + at, bytes);
    return 0;
}

/* ---- a run ---- */

typedef struct {
    const step_case *c;
    qfw_image image;
    qfw_flash flash;
    unsigned number;
} training;

static bool lasts(const training *t, uint32_t steps)
{
    const size_t bytes = t->c->state_bytes - sizeof(qfw_state_header);
    const uint8_t *first = (const uint8_t *)t->c->state + sizeof(qfw_state_header);
    const uint32_t crc = steps == 0 ? qfw_crc32(0, first, bytes) : t->c->crcs[steps - 1];
    return qfw_crc32(0, step_arena + QFW_NET_BYTES, bytes) == crc;
}

/* After a reset: the steps that are there, all of those that were kept and at most one more. */
static uint32_t booted(const training *t, qfw_net **net, uint32_t kept)
{
    qfw_progress progress;
    memset(step_arena, 0xA5, t->c->arena_bytes);
    const bool open = qfw_open(step_arena, t->c->arena_bytes, &t->image, net) == QFW_OK;
    report_check(open, t->number, "open");
    const qfw_status status = open ? qfw_resume(*net, &t->flash) : QFW_E_NULL;
    if (!open || qfw_get_progress(*net, &progress) != QFW_OK) {
        return STEP_STEPS;
    }
    const uint32_t steps = progress.step - t->c->steps_before;
    report_check(status == (steps == 0 ? QFW_E_EMPTY : QFW_OK), t->number, "resume");
    report_check(steps == kept || steps == kept + 1, t->number, "steps that were lost");
    report_check(steps <= STEP_STEPS && lasts(t, steps), t->number, "what was resumed");
    return steps;
}

/* Steps from there on, each kept; how many were when the power failed. */
static uint32_t trained(const training *t, qfw_net *net, uint32_t steps)
{
    for (uint32_t i = steps; i < STEP_STEPS; i++) {
        const step_data *data = &step_steps[i];
        float loss;
        uint32_t bits;
        const void *y = t->c->targets[i] != NULL ? t->c->targets[i] : data->y;
        const bool ok = qfw_step(net, data->x, y, data->rows, &loss) == QFW_OK;
        memcpy(&bits, &loss, sizeof bits);
        report_check(ok && bits == t->c->losses[i], t->number, "loss");
        const qfw_status status = qfw_store(net, &t->flash);
        report_check(status == (flash.on ? QFW_OK : QFW_E_FLASH), t->number, "store");
        if (status != QFW_OK) {
            return i;
        }
    }
    return STEP_STEPS;
}

/* A whole training whose power fails once, after so many granules and sectors; whether it did. */
static bool interrupted(const training *t, uint32_t after, end how)
{
    qfw_net *net = NULL;
    memset(flash.bytes, 0xFF, sizeof flash.bytes);
    memset(flash.taken, 0, sizeof flash.taken);
    flash.on = true;
    flash.left = after;
    flash.end = how;
    uint32_t steps = booted(t, &net, 0);
    uint32_t kept = trained(t, net, steps);
    const bool failed = !flash.on;
    flash.on = true;
    flash.left = ENDLESS;
    if (failed) {
        steps = booted(t, &net, kept);
        kept = trained(t, net, steps);
    }
    report_check(kept == STEP_STEPS && lasts(t, STEP_STEPS), t->number, "the end");
    (void)booted(t, &net, STEP_STEPS);
    report_check(!flash.misused, t->number, "how the flash is used");
    return failed;
}

/* After a training, whose last step is in slot 0: bits that flip in one slot, in both. */
static void check_rot(const training *t)
{
    qfw_net *net;
    for (uint32_t at = 0; at < t->c->state_bytes; at += 61) {
        const uint8_t bit = (uint8_t)(1u << at % 8);
        flash.bytes[at] ^= bit;
        report_check(booted(t, &net, STEP_STEPS - 1) == STEP_STEPS - 1, at, "a slot that rots");
        flash.bytes[flash.slot_bytes + at] ^= bit;
        report_check(booted(t, &net, 0) == 0, at, "slots that rot");
        flash.bytes[at] ^= bit;
        report_check(booted(t, &net, STEP_STEPS) == STEP_STEPS, at, "the other slot that rots");
        flash.bytes[flash.slot_bytes + at] ^= bit;
    }
}

static unsigned check_case(const step_case *c)
{
    training t = {c,
                  {c->plan, c->plan_bytes, c->constants, c->const_bytes, qfw_kernels_portable(),
                   qfw_ops_all(), c->state, c->state_bytes},
                  {&flash, 0, flash_read, flash_write},
                  0};
    size_t bytes = 0;
    const qfw_status status = qfw_state_size(&t.image, &bytes);
    const bool fits = status == QFW_OK && bytes >= c->state_bytes && bytes <= AREA / 2;
    report_check(fits, 0, "the size of a slot");
    flash.slot_bytes = t.flash.slot_bytes = (uint32_t)(bytes + SECTOR - 1) / SECTOR * SECTOR;
    const bool small =
        bytes <= SECTOR + SECTOR / 2; /* larger ones in less detail, for time's sake */
    flash.granule = small ? LEAST_GRANULE : QFW_FLASH_UNIT;
    for (kind k = NOR; fits && k < KINDS; k++) {
        for (end how = small ? UNTOUCHED : LAST_HALF; how < ENDS; how++) {
            flash.kind = k;
            for (uint32_t after = 0; interrupted(&t, after, how); after++) {
                t.number++;
            }
        }
        check_rot(&t);
    }
    return t.number;
}

int main(void)
{
    for (unsigned i = 0; i < step_cases_count; i++) {
        report_suite(step_cases[i].name);
        flash.misused = false;
        report_suite_end(check_case(&step_cases[i]));
    }
    report_exit();
    return 1;
}
