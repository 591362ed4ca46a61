/* A plugin of QEMU's (its API version 1): how many instructions ran between the marks of
 * harness_qemu.c, a line for each pair, in the file that `out=` names.
 *   cc -O2 -shared -fPIC qemu_count.c -o qemu_count.so;  qemu-system-arm -plugin qemu_count.so,out=FILE
 * The declarations are those of the API that it uses: distributions lack its header. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void on_block(plugin_id id, struct qemu_plugin_tb *block);
typedef void on_run(unsigned cpu, void *data);
typedef void on_exit_fn(plugin_id id, void *data);

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, on_block *call);
void qemu_plugin_register_atexit_cb(plugin_id id, on_exit_fn *call, void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t i);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *instruction);
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *instruction, int add,
                                                void *to, uint64_t value);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *instruction, on_run *call,
                                            int flags, void *data);

#define EXPORTED __attribute__((visibility("default")))
enum { BEGIN = 0x46C9, END = 0x46D2 }; /* mov r9, r9 and mov r10, r10 */

EXPORTED int qemu_plugin_version = 1;
static uint64_t total, at_begin;
static FILE *out;

static void begin(unsigned cpu, void *data)
{
    (void)cpu, (void)data;
    at_begin = total;
}

/* The closing mark has been counted already. */
static void end(unsigned cpu, void *data)
{
    (void)cpu, (void)data;
    fprintf(out, "%" PRIu64 "\n", total - at_begin - 1);
}

static void translate(plugin_id id, struct qemu_plugin_tb *block)
{
    (void)id;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        uint16_t code;
        memcpy(&code, qemu_plugin_insn_data(instruction), sizeof code);
        qemu_plugin_register_vcpu_insn_exec_inline(instruction, 0, &total, 1);
        if (code == BEGIN || code == END) {
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, code == BEGIN ? begin : end, 0,
                                                   NULL);
        }
    }
}

static void finish(plugin_id id, void *data)
{
    (void)id, (void)data;
    fclose(out);
}

EXPORTED int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
    (void)info;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "out=", 4) == 0) {
            out = fopen(argv[i] + 4, "w");
        }
    }
    if (out == NULL) {
        return -1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
    qemu_plugin_register_atexit_cb(id, finish, NULL);
    return 0;
}
