#include "thread_state.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tandem::shim {

// The model is said again: a definition without it gets the default.
__thread ThreadState g_thread __attribute__((tls_model("initial-exec")));

namespace {

// pthread keys, not thread_local destructors: those need the C++ runtime's help at exit.
pthread_key_t g_exit_key;
pthread_once_t g_exit_key_once = PTHREAD_ONCE_INIT;

void give_ring_back(void*) { g_thread.ring.release(); }
void make_exit_key() { pthread_key_create(&g_exit_key, give_ring_back); }

}  // namespace

void claim_ring(Channel& channel) {
  pthread_once(&g_exit_key_once, make_exit_key);
  pthread_setspecific(g_exit_key, &g_thread);
  g_thread.ring.release();
  g_thread.ring.claim(channel.state, thread_id());
}

uint32_t ask_thread_id() {
  g_thread.tid = static_cast<uint32_t>(syscall(SYS_gettid));
  return g_thread.tid;
}

void write_record(Channel& channel, const shm::Record& record) {
  fill_record(channel, [&record](shm::Record& place) { place = record; });
}

}  // namespace tandem::shim
