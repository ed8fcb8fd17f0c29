#include "thread_state.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bias.h"
#include "line.h"
#include "old_glibc.h"
#include "slots.h"

namespace tandem::shim {

// The TLS model is repeated: a definition without it gets the default.
__thread ThreadState g_thread __attribute__((tls_model("initial-exec")));

namespace {

// pthread keys, not thread_local destructors: those need help from the C++ runtime at exit.
pthread_key_t g_exit_key;
pthread_once_t g_exit_key_once = PTHREAD_ONCE_INIT;
bool g_has_exit_key = false;  // false: the process has used up its keys; written by the once

// If the pages are another attachment's by now, the ring may be another thread's.
void release_ring() {
  const Channel* channel = g_channel.load(std::memory_order_acquire);
  if (channel && channel->attachment.load(std::memory_order_relaxed) == g_thread.ring_of)
    g_thread.ring.release();
  g_thread.ring = {};
  g_thread.ring_of = 0;
}

// Makes no driver call: the driver's own thread state may be gone.
void give_back(void*) {
  release_ring();
  partition::release_owner();
  line::uncount_thread();
  g_thread.attachment = 0;
  if (Channel* channel = g_channel.load(std::memory_order_acquire))
    retire_slots_of_thread(*channel);
}
void make_exit_key() {
  g_has_exit_key = old_glibc::pthread_key_create(&g_exit_key, give_back) == 0;
}

}  // namespace

void watch_thread_end() {
  if (old_glibc::pthread_once(&g_exit_key_once, make_exit_key) == 0 && g_has_exit_key)
    old_glibc::pthread_setspecific(g_exit_key, &g_thread);
}

void claim_ring(Channel& channel) {
  watch_thread_end();
  line::count_thread();
  release_ring();
  g_thread.ring.claim(channel.state, thread_id());
  g_thread.ring_of = channel.attachment.load(std::memory_order_relaxed);
}

uint32_t ask_thread_id() {
  g_thread.tid = static_cast<uint32_t>(syscall(SYS_gettid));
  return g_thread.tid;
}

void write_record(Channel& channel, const shm::Record& record) {
  fill_record(channel, [&record](shm::Record& place) { place = record; });
}

}  // namespace tandem::shim
