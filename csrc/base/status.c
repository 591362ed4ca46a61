#include "include/qfw.h"

const char *qfw_version(void)
{
    return "0.1.0";
}

const char *qfw_status_text(qfw_status status)
{
    switch (status) {
    case QFW_OK:
        return "no error";
    case QFW_E_NULL:
        return "a pointer that is needed is NULL";
    case QFW_E_SIZE:
        return "a size is negative or too large, or two shapes differ";
    case QFW_E_GROUP:
        return "a group is not positive, or does not divide its axis where exact was asked";
    case QFW_E_KIND:
        return "an enumerator is unknown or not allowed here";
    case QFW_E_BITS:
        return "a width is outside its format's range";
    case QFW_E_CONTAINER:
        return "a container is unknown or narrower than the width";
    case QFW_E_RANGE:
        return "qmax is below qmin, or the code range is wider than the type of the codes";
    case QFW_E_SCALE:
        return "a scale is not a positive normal number (or not a power of two where it must be)";
    case QFW_E_ZERO_POINT:
        return "a zero point is outside its format's range";
    case QFW_E_NONFINITE:
        return "the data hold a NaN or an infinity";
    case QFW_E_LABEL:
        return "a label is negative or not below the number of classes";
    case QFW_E_MAGIC:
        return "these bytes are not a plan or state";
    case QFW_E_VERSION:
        return "the plan or state has another version than this core";
    case QFW_E_CRC:
        return "the bytes of the plan or state were changed: the CRC differs";
    case QFW_E_PLAN:
        return "a field of the plan is out of range or contradicts another";
    case QFW_E_ARENA:
        return "the arena is too small or not aligned to 16 bytes";
    case QFW_E_ROWS:
        return "no rows, or more than the plan was compiled for";
    case QFW_E_ORDER:
        return "backward needs a forward before it, update a backward";
    case QFW_E_FLOAT:
        return "this machine's float arithmetic is not IEEE single precision";
    case QFW_E_NORM:
        return "the norm of all gradients is infinite or NaN";
    case QFW_E_BATCH:
        return "a normalisation over the batch has one value a channel";
    case QFW_E_STATE:
        return "the state is of another plan, or the constants are not those it was made with";
    case QFW_E_EMPTY:
        return "the flash area holds no state of this net";
    case QFW_E_FLASH:
        return "the flash area was not written, or does not read back";
    case QFW_E_FEATURE:
        return "this core was compiled without what is asked for";
    case QFW_E_THREADS:
        return "the system did not start as many threads";
    default:
        return "unknown status";
    }
}
