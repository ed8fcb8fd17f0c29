#include "tracing_times.h"

#include <pthread.h>
#include <sys/mman.h>

#include "capture.h"
#include "driver.h"
#include "mutex.h"
#include "relaxed.h"
#include "streams.h"
#include "tracing.h"

namespace tandem::shim::tracing {

// Owned by the list it is in, by its thread between begin and end, or by a collector.
struct EventPair {
  EventPair* next;
  CUcontext context;
  CUdevice device;
  CUevent begin, end;
  CallId call;
};

namespace {

constexpr size_t kPairsAtOnce = 1024;

struct List {
  EventPair* first = nullptr;
  EventPair* last = nullptr;

  void push_back(EventPair* pair) {
    pair->next = nullptr;
    (last ? last->next : first) = pair;
    last = pair;
  }
  EventPair* pop_front() {
    EventPair* pair = first;
    if (pair) first = pair->next;
    if (!first) last = nullptr;
    return pair;
  }
  void push_all_front(List& others) {
    if (!others.first) return;
    others.last->next = first;
    if (!last) last = others.last;
    first = others.first;
    others = List{};
  }
};

// Guards the lists; never held across a driver call.
pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;
List g_pending;  // in launch order
List g_idle;     // with events
List g_blank;    // without

EventPair* take_idle(CUcontext context) {
  const HoldsMutex locked(&g_mutex);
  List others;
  EventPair* found = nullptr;
  while (EventPair* pair = g_idle.pop_front()) {
    if (pair->context == context) {
      found = pair;
      break;
    }
    others.push_back(pair);
  }
  g_idle.push_all_front(others);
  return found;
}

EventPair* take_blank() {
  const HoldsMutex locked(&g_mutex);
  if (!g_blank.first) {
    void* place = mmap(nullptr, kPairsAtOnce * sizeof(EventPair), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED) return nullptr;
    for (size_t i = 0; i < kPairsAtOnce; ++i) g_blank.push_back(static_cast<EventPair*>(place) + i);
  }
  return g_blank.pop_front();
}

void put(List& list, EventPair* pair) {
  const HoldsMutex locked(&g_mutex);
  list.push_back(pair);
}

EventPair* take_pair(CUcontext context) {
  if (EventPair* pair = take_idle(context)) return pair;
  EventPair* pair = take_blank();
  if (!pair) return nullptr;
  pair->context = context;
  pair->device = -1;
  if (g_driver.cuCtxGetDevice) g_driver.cuCtxGetDevice(&pair->device);
  if (g_driver.cuEventCreate && g_driver.cuEventCreate(&pair->begin, 0) == CUDA_SUCCESS &&
      g_driver.cuEventCreate(&pair->end, 0) == CUDA_SUCCESS) {
    return pair;
  }
  put(g_blank, pair);
  return nullptr;
}

void drop_from(List& list, CUcontext context, CUdevice device) {
  List kept;
  while (EventPair* pair = list.pop_front()) {
    const bool is_doomed = context ? pair->context == context : pair->device == device;
    (is_doomed ? g_blank : kept).push_back(pair);
  }
  list = kept;
}

bool record(CUevent event, CUstream handle) {
  const partition::Stream stream(handle, partition::How::kHold);
  return g_driver.cuEventRecord(event, stream.real()) == CUDA_SUCCESS;
}

}  // namespace

EventPair* begin_device_time(CUstream stream) {
  CUcontext context = nullptr;
  if (!g_driver.cuEventRecord || !g_driver.cuCtxGetCurrent ||
      g_driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context) {
    return nullptr;
  }
  if (any_capture() && is_capturing(stream)) return nullptr;
  const RelaxedCapture relaxed;
  EventPair* pair = take_pair(context);
  if (!pair) return nullptr;
  if (record(pair->begin, stream)) return pair;
  put(g_idle, pair);
  return nullptr;
}

void end_device_time(EventPair* pair, CUstream stream, bool taken) {
  const RelaxedCapture relaxed;
  if (!taken || !record(pair->end, stream)) return put(g_idle, pair);
  pair->call = current_call();
  mark_timed();
  put(g_pending, pair);
}

void collect_device_times(uint32_t patience) {
  List unfinished, finished;
  const RelaxedCapture relaxed;
  while (patience) {
    EventPair* pair = nullptr;
    {
      const HoldsMutex locked(&g_mutex);
      pair = g_pending.pop_front();
    }
    if (!pair) break;
    float ms = 0;
    const CUresult result = g_driver.cuEventElapsedTime(&ms, pair->begin, pair->end);
    if (result == CUDA_ERROR_NOT_READY) {
      unfinished.push_back(pair);
      --patience;
      continue;
    }
    if (result == CUDA_SUCCESS && ms >= 0)
      write_device_time(pair->call, static_cast<uint64_t>(static_cast<double>(ms) * 1e6 + 0.5));
    finished.push_back(pair);
  }
  const HoldsMutex locked(&g_mutex);
  g_pending.push_all_front(unfinished);
  g_idle.push_all_front(finished);
}

void drop_device_times(CUcontext context, CUdevice device) {
  const HoldsMutex locked(&g_mutex);
  drop_from(g_pending, context, device);
  drop_from(g_idle, context, device);
}

void forget_device_times() {
  g_mutex = PTHREAD_MUTEX_INITIALIZER;  // another thread may have held it
  g_pending = g_idle = List{};
}

}  // namespace tandem::shim::tracing
