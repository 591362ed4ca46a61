/* Steps of small networks, continued from where a session on the desktop stood: losses, outputs and
 * every byte that lasts must be those of the session. A suite is a network; its cases are its steps
 * and then the outputs. */
#include <string.h>

#include "base/crc.h"
#include "include/qfw.h"
#include "report.h"
#include "step.h"

enum { FILL = 0xA5 };

static bool lasts(const step_case *c, uint32_t crc)
{
    const size_t bytes = c->state_bytes - sizeof(qfw_state_header);
    return qfw_crc32(0, step_arena + QFW_NET_BYTES, bytes) == crc;
}

/* Nothing was written behind the arena that the plan asked for. */
static bool kept_to_its_arena(const step_case *c)
{
    for (size_t i = c->arena_bytes; i < step_arena_bytes; i++) {
        if (step_arena[i] != FILL) {
            return false;
        }
    }
    return true;
}

static bool checked(const step_case *c)
{
    qfw_fault fault;
    return qfw_check(c->plan, c->plan_bytes, &fault) == QFW_OK;
}

/* The net in its arena, with the parameters, the state and the progress of the session. */
static bool opened(const step_case *c, qfw_net **net)
{
    const qfw_image image = {c->plan,        c->plan_bytes,          c->constants,
                             c->const_bytes, qfw_kernels_portable(), qfw_ops_all(),
                             c->state,       c->state_bytes};
    size_t bytes;
    memset(step_arena, FILL, step_arena_bytes);
    return qfw_arena_size(&image, &bytes) == QFW_OK && bytes == c->arena_bytes &&
           qfw_open(step_arena, bytes, &image, net) == QFW_OK;
}

static void check_step(const step_case *c, qfw_net *net, unsigned i)
{
    const step_data *data = &step_steps[i];
    float loss;
    uint32_t bits;
    qfw_progress progress;
    const void *y = c->targets[i] != NULL ? c->targets[i] : data->y;
    const qfw_status status = qfw_step(net, data->x, y, data->rows, &loss);
    report_check(status == QFW_OK, i, "status");
    memcpy(&bits, &loss, sizeof bits);
    report_check(status == QFW_OK && bits == c->losses[i], i, "loss");
    report_check(lasts(c, c->crcs[i]), i, "parameters, gradients, state");
    report_check(qfw_get_progress(net, &progress) == QFW_OK &&
                     progress.step == c->steps_before + i + 1 && progress.updates == progress.step,
                 i, "progress");
}

static void check_outputs(const step_case *c, qfw_net *net)
{
    static float out[STEP_OUTPUTS];
    const qfw_status status = qfw_infer(net, step_asked.x, step_asked.rows, out);
    report_check(status == QFW_OK && memcmp(out, c->outputs, sizeof out) == 0, STEP_STEPS,
                 "outputs");
    report_check(lasts(c, c->crcs[STEP_STEPS - 1]), STEP_STEPS, "what lasts is as it was");
    report_check(kept_to_its_arena(c), STEP_STEPS, "what is behind the arena");
}

static void check_case(const step_case *c)
{
    qfw_net *net = NULL;
    report_check(checked(c), 0, "check");
    const bool open = opened(c, &net);
    report_check(open, 0, "open");
    for (unsigned i = 0; open && i < STEP_STEPS; i++) {
        check_step(c, net, i);
    }
    if (open) {
        check_outputs(c, net);
    }
}

int main(void)
{
    for (unsigned i = 0; i < step_cases_count; i++) {
        report_suite(step_cases[i].name);
        check_case(&step_cases[i]);
        report_suite_end(STEP_STEPS + 1);
    }
    report_exit();
    return 1;
}
