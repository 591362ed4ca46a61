#include "include/qfw.h"
const char *qfw_op_name(uint32_t k, uint16_t p[6]) { (void)k; (void)p; return NULL; }
qfw_status qfw_check(const void *p, size_t b, qfw_fault *f) { (void)p; (void)b; (void)f; return QFW_E_PLAN; }
const qfw_ops *qfw_ops_all(void) { return NULL; }
qfw_status qfw_arena_size(const qfw_image *i, size_t *b) { (void)i; (void)b; return QFW_E_PLAN; }
qfw_status qfw_open(void *a, size_t n, const qfw_image *i, qfw_net **net) { (void)a; (void)n; (void)i; (void)net; return QFW_E_PLAN; }
qfw_status qfw_get_progress(const qfw_net *n, qfw_progress *p) { (void)n; (void)p; return QFW_E_PLAN; }
qfw_status qfw_set_progress(qfw_net *n, const qfw_progress *p) { (void)n; (void)p; return QFW_E_PLAN; }
qfw_status qfw_walk(qfw_net *n, const qfw_io *io, uint32_t r, uint32_t f, uint32_t c, uint32_t *d) { (void)n; (void)io; (void)r; (void)f; (void)c; (void)d; return QFW_E_PLAN; }
qfw_status qfw_run_section(qfw_net *n, qfw_section s, const qfw_io *io, uint32_t r) { (void)n; (void)s; (void)io; (void)r; return QFW_E_PLAN; }
qfw_status qfw_step(qfw_net *n, const void *x, const void *y, uint32_t r, float *l) { (void)n; (void)x; (void)y; (void)r; (void)l; return QFW_E_PLAN; }
qfw_status qfw_infer(qfw_net *n, const void *x, uint32_t r, float *o) { (void)n; (void)x; (void)r; (void)o; return QFW_E_PLAN; }
