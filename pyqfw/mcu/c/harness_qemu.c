/* The harness in QEMU: takes commands from the file "commands", answers into the file "answers".
 *
 * A command is {kind, five words, bytes of x, bytes of y} and then those bytes; an answer is {status,
 * the loss's bits}, for an inference {status} and the outputs. At the end come the progress, the
 * bytes of stack, and the arena. What is counted runs between two marks. */
#include <string.h>

#include "cross/semihost.h"
#include "cross/stack.h"
#include "harness.h"

enum { END, STEP, WALK, INFER };
enum { SEMIHOST_OPEN = 0x01, SEMIHOST_CLOSE = 0x02, SEMIHOST_WRITE = 0x05, SEMIHOST_READ = 0x06 };
enum { READ_BINARY = 1, WRITE_BINARY = 5 };

typedef struct {
    uint32_t kind, word[MCU_WORDS], x_bytes, y_bytes;
} command;

static uint32_t open_file(const char *name, uint32_t length, uint32_t mode)
{
    const uint32_t block[3] = {(uint32_t)(uintptr_t)name, mode, length};
    return (uint32_t)semihost_call(SEMIHOST_OPEN, block);
}

/* The bytes that were not transferred. */
static uint32_t transfer(int32_t how, uint32_t file, const void *data, uint32_t bytes)
{
    const uint32_t block[3] = {file, (uint32_t)(uintptr_t)data, bytes};
    return bytes == 0 ? 0 : (uint32_t)semihost_call(how, block);
}

/* What is between them is counted; the compiler makes neither. */
static inline void mark_begin(void)
{
    __asm__ volatile("mov r9, r9" : : : "memory");
}

static inline void mark_end(void)
{
    __asm__ volatile("mov r10, r10" : : : "memory");
}

static qfw_status obey(const command *c)
{
    qfw_status status;
    memcpy(mcu_command, c->word, sizeof mcu_command);
    mark_begin();
    status = c->kind == STEP   ? mcu_step(c->word[MCU_ROWS])
             : c->kind == WALK ? mcu_walk()
                               : mcu_infer();
    mark_end();
    return status;
}

int main(void)
{
    command c;
    uint32_t answer[2];
    const uint32_t from = open_file("commands", 8, READ_BINARY);
    const uint32_t to = open_file("answers", 7, WRITE_BINARY);
    const qfw_status opened = mcu_open();
    answer[0] = (uint32_t)opened;
    answer[1] = 0;
    transfer(SEMIHOST_WRITE, to, answer, sizeof answer);
    while (opened == QFW_OK && transfer(SEMIHOST_READ, from, &c, sizeof c) == 0 && c.kind != END) {
        if (transfer(SEMIHOST_READ, from, mcu_x, c.x_bytes) != 0 ||
            transfer(SEMIHOST_READ, from, mcu_y, c.y_bytes) != 0) {
            return 1;
        }
        answer[0] = (uint32_t)obey(&c);
        memcpy(&answer[1], &mcu_loss, sizeof answer[1]);
        transfer(SEMIHOST_WRITE, to, answer, sizeof answer);
        if (c.kind == INFER) {
            transfer(SEMIHOST_WRITE, to, mcu_out, MODEL_OUTPUTS * sizeof *mcu_out);
        }
    }
    const uint32_t stack = stack_used();
    transfer(SEMIHOST_WRITE, to, &mcu_progress, sizeof mcu_progress);
    transfer(SEMIHOST_WRITE, to, &stack, sizeof stack);
    transfer(SEMIHOST_WRITE, to, mcu_arena, sizeof mcu_arena);
    transfer(SEMIHOST_CLOSE, to, NULL, 0);
    return 0;
}
