/* What a job may tell Tandem about itself. The functions exist only while the library is preloaded:
 * look them up with dlsym(RTLD_DEFAULT, ...) and do without when they are missing. */
#ifndef TANDEM_MARK_H_
#define TANDEM_MARK_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tandem_mark_kind {
  /* An iteration ended here. id: its number, or 0. value: unused. */
  TANDEM_MARK_STEP = 1,
  /* id: FNV-1a (64 bits) of the phase's name. value: unused. */
  TANDEM_MARK_PHASE_BEGIN = 2,
  TANDEM_MARK_PHASE_END = 3,
  /* Do not take the GPU away for the next `value` nanoseconds; 0 ends the wish early. id: unused.
   * The daemon bounds it (scheduler.critical_ms). Of several wishes the one that lasts longest
   * counts, until each has been ended. */
  TANDEM_MARK_CRITICAL = 4,
  /* A request with a latency objective. id: its number. value: at the begin, how long it should
   * take at most, in nanoseconds, 0 = not given; at the end unused. Tandem reports a request's
   * latency against this value, but decides nothing by it. Between begin and end a latency-class
   * process counts as busy even while the GPU does nothing for it. */
  TANDEM_MARK_REQUEST_BEGIN = 5,
  TANDEM_MARK_REQUEST_END = 6
};

/* Sets a mark. Returns 0 when taken, -1 for an unknown kind. Never blocks; may be called from any
 * thread. */
int tandem_mark_v1(int kind, uint64_t id, uint64_t value);

/* 1 while this process is attached to a daemon. */
int tandem_is_managed_v1(void);

/* 1 while another job waits for memory of a device that this process uses. Cheap enough to call
 * repeatedly. */
int tandem_memory_is_wanted_v1(void);

/* For a program that wants to do something before its job is paused. Returns the number of the
 * pause that is about to begin, or has begun; 0 = there is none, or nobody is there to hold the
 * program. `ready`: the number of the newest pause for which the program has finished, so that it
 * is not waited for any longer; 0 at first. Call it repeatedly, in each process separately: a
 * process that does not ask is not waited for. */
uint32_t tandem_pause_v1(uint32_t ready);
/* The program no longer wants to do something before pauses. */
void tandem_pause_end_v1(void);

#ifdef __cplusplus
}
#endif
#endif /* TANDEM_MARK_H_ */
