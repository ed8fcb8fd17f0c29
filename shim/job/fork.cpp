#include "fork.h"

#include <pthread.h>

#include "berths.h"
#include "capture.h"
#include "context_numbers.h"
#include "driver.h"
#include "graph_memory.h"
#include "helper.h"
#include "holdings.h"
#include "line.h"
#include "marks.h"
#include "memory.h"
#include "pool_rows.h"
#include "presence.h"
#include "ring_writer.h"
#include "sample_writer.h"
#include "session.h"
#include "streams.h"
#include "swappable.h"
#include "thread_state.h"
#include "ties.h"
#include "timing.h"
#include "tracing.h"

namespace tandem::shim {
namespace {

// Only the forking thread lives on. The maps are not in the child (MADV_DONTFORK); the socket is,
// and must be closed here, or the daemon would not notice the parent's end.
void become_child() {
  resume_in_child();
  g_channel.store(nullptr);
  berths::each_channel([](Channel& parents) { parents.socket.drop(); });
  holdings::unlock_after_fork();
  holdings::start_afresh();
  pools::start_afresh();
  graph_memory::start_afresh();
  memory::start_afresh();
  line::start_afresh();
  swap::start_afresh();
  berths::start_afresh();
  ties::start_afresh();
  forget_helper();
  forget_all_timings();
  reset_shared_ring_lock();
  reset_sample_lock();
  reset_context_numbers();
  g_thread = ThreadState{};
  forget_captures();
  forget_requests();
  forget_wishes();
  partition::start_afresh();
  tracing::become_child();
  // Off stays off; otherwise everything begins again at the next call that needs a context.
  if (g_session.load() != SessionState::kOff) g_session.store(SessionState::kFresh);
}

}  // namespace

void watch_forks() {
  static std::atomic<bool> watching{false};  // inherited by children, together with the handlers
  if (watching.exchange(true)) return;
  pthread_atfork(holdings::lock_for_fork, holdings::unlock_after_fork, become_child);
  keep_page_from_children();
}

}  // namespace tandem::shim
