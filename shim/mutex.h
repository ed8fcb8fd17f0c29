// Holds one of the shim's mutexes for the duration of a scope; std::mutex would pull in the C++
// runtime.
#pragma once

#include <pthread.h>

namespace tandem::shim {

class HoldsMutex {
 public:
  explicit HoldsMutex(pthread_mutex_t* mutex) : mutex_(mutex) { pthread_mutex_lock(mutex_); }
  ~HoldsMutex() { pthread_mutex_unlock(mutex_); }
  HoldsMutex(const HoldsMutex&) = delete;
  HoldsMutex& operator=(const HoldsMutex&) = delete;

 private:
  pthread_mutex_t* mutex_;
};

}  // namespace tandem::shim
