#include "user_object.h"

#include <pthread.h>
#include <signal.h>

#include <climits>
#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>

#include "api.h"
#include "graph.h"

namespace softgpu {

struct UserObject {
  CUhostFn destroy;
  void* argument;
  uint64_t references;
};

namespace {

// Runs destructors on a thread of its own: they may take locks of the program that a thread in a
// driver call holds.
class Undertaker {
 public:
  void hand_over(CUhostFn destroy, void* argument) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!started_) start();
    due_.emplace_back(destroy, argument);
    changed_.notify_one();
  }

 private:
  void start() {
    started_ = true;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([this] { loop(); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void loop() {
    t_in_body = true;  // a destructor must not call the driver
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !due_.empty(); });
      const auto [destroy, argument] = due_.front();
      due_.pop_front();
      lock.unlock();
      destroy(argument);
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<CUhostFn, void*>> due_;
  bool started_ = false;
};

Undertaker& undertaker() {
  static auto* const only = new Undertaker;  // never destroyed: its thread outlives main()
  return *only;
}

bool sensible(unsigned count) { return count > 0 && count <= INT_MAX; }

}  // namespace

void retain_references(UserObject* object, unsigned count) { object->references += count; }

void release_references(Runtime& rt, UserObject* object, unsigned count) {
  object->references -= count;
  if (object->references > 0) return;
  rt.user_objects.erase(object);
  undertaker().hand_over(object->destroy, object->argument);
  delete object;
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuUserObjectCreate(CUuserObject* out, void* argument, CUhostFn destroy,
                               unsigned int references, unsigned int flags) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out || !destroy || !sensible(references) || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto* object = new UserObject{destroy, argument, references};
  call.rt.user_objects.insert(object);
  *out = reinterpret_cast<CUuserObject>(object);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuUserObjectRetain(CUuserObject handle, unsigned int count) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  auto* object = checked<UserObject>(call.rt.user_objects, handle);
  if (!object || !sensible(count)) return CUDA_ERROR_INVALID_VALUE;
  retain_references(object, count);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuUserObjectRelease(CUuserObject handle, unsigned int count) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  auto* object = checked<UserObject>(call.rt.user_objects, handle);
  if (!object || !sensible(count) || count > object->references) return CUDA_ERROR_INVALID_VALUE;
  release_references(call.rt, object, count);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count,
                                    unsigned int flags) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  auto* graph = checked<Graph>(call.rt.graphs, graph_handle);
  auto* object = checked<UserObject>(call.rt.user_objects, handle);
  if (!graph || !object || !sensible(count)) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & ~static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!(flags & CU_GRAPH_USER_OBJECT_MOVE)) retain_references(object, count);
  graph->user_objects[object] += count;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle,
                                     unsigned int count) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  auto* graph = checked<Graph>(call.rt.graphs, graph_handle);
  auto* object = checked<UserObject>(call.rt.user_objects, handle);
  if (!graph || !object || !sensible(count)) return CUDA_ERROR_INVALID_VALUE;
  const auto owned = graph->user_objects.find(object);
  if (owned == graph->user_objects.end() || owned->second < count) return CUDA_ERROR_INVALID_VALUE;
  owned->second -= count;
  if (owned->second == 0) graph->user_objects.erase(owned);
  release_references(call.rt, object, count);
  return CUDA_SUCCESS;
}
