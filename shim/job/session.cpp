#include "session.h"

#include <cstring>

#include "attach.h"
#include "driver.h"
#include "fork.h"
#include "helper.h"
#include "homes.h"
#include "log.h"
#include "memory.h"
#include "regions.h"
#include "streams.h"
#include "ties.h"

namespace tandem::shim {

std::atomic<SessionState> g_session{SessionState::kFresh};
Settings g_settings;

namespace {

constexpr uint32_t kShimVersion = 0u << 16 | 1u << 8 | 0u;
// As long as it takes for a daemon to count as hung: a daemon that is only busy has to learn of a
// job before the job takes memory that was promised to others.
constexpr int kFirstAttachMs = 2000;

bool has_context() {
  CUcontext context = nullptr;
  return g_driver.cuCtxGetCurrent && g_driver.cuCtxGetCurrent(&context) == CUDA_SUCCESS && context;
}

void start_clock() {
  const Driver& real = g_driver;
  if (real.softgpu_clock_is_virtual && real.softgpu_now_ns && real.softgpu_wait_for_change &&
      real.softgpu_clock_is_virtual() == 1) {
    g_clock.start_virtual(real.softgpu_now_ns, real.softgpu_wait_for_change);
  } else {
    g_clock.start_real();
  }
}

// "40%" and "64 SMs" have a meaning only once a device is known.
void resolve_shares(CUdevice device) {
  size_t total = 0;
  if (g_settings.memory_percent && g_driver.cuDeviceTotalMem_v2 &&
      g_driver.cuDeviceTotalMem_v2(&total, device) == CUDA_SUCCESS) {
    g_settings.request.memory_bytes = total / 100 * g_settings.memory_percent;
  }
  int sms = 0;
  if (g_settings.sm_count && g_driver.cuDeviceGetAttribute &&
      g_driver.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) ==
          CUDA_SUCCESS &&
      sms > 0) {
    const uint32_t percent = g_settings.sm_count * 100 / static_cast<uint32_t>(sms);
    g_settings.request.sm_percent = percent < 1 ? 1 : percent > 100 ? 100 : percent;
  }
}

wire::Hello g_hello;  // made once, by the starting thread; the helper sends it again

void make_hello(CUdevice device) {
  wire::Hello& hello = g_hello;
  hello = {};
  hello.header = {wire::kMagic, wire::kProtocolVersion, static_cast<uint16_t>(wire::Type::kHello),
                  sizeof(hello), 0};
  hello.layout_min = hello.layout_max = shm::kLayoutVersion;
  hello.shim_version = kShimVersion;
  hello.clock = static_cast<uint32_t>(g_clock.is_virtual() ? wire::ClockKind::kSoftGpuVirtual
                                                           : wire::ClockKind::kMonotonic);
  hello.job_id = g_settings.job_id;
  hello.request = g_settings.request;
  hello.promise = g_settings.promise;
  hello.space = {g_settings.sm_count, g_settings.isolation};
  hello.mps_sms = g_settings.mps_sms;
  hello.idle_release_s = g_settings.idle_release_s;
  hello.abilities = wire::kAbilityHostFile | wire::kAbilityHostBack;
  CUuuid uuid{};
  if (g_driver.cuDeviceGetUuid_v2 && g_driver.cuDeviceGetUuid_v2(&uuid, device) == CUDA_SUCCESS) {
    hello.device_count = 1;
    ties::set_first_device(device);
    std::memcpy(hello.device_uuid[0], uuid.bytes, sizeof(hello.device_uuid[0]));
  }
}

}  // namespace

void start_session() {
  if (!has_context()) return;
  CUdevice device = 0;
  if (g_driver.cuCtxGetDevice) g_driver.cuCtxGetDevice(&device);
  start_session_on(device);
}

void start_session_on(CUdevice device) {
  SessionState expected = SessionState::kFresh;
  if (!g_session.compare_exchange_strong(expected, SessionState::kStarting)) return;
  watch_forks();
  g_settings = read_settings();
  if (g_settings.disabled) {
    g_session.store(SessionState::kOff, std::memory_order_release);
    return;
  }
  start_clock();
  resolve_shares(device);
  make_hello(device);
  partition::attach_on(device);
  attach(kFirstAttachMs);
  if (start_helper()) {
    g_session.store(SessionState::kStarted, std::memory_order_release);
    return;
  }
  // Without a helper, nobody would notice that the daemon is gone, or end open segments.
  lose_channel();
  say_once("helper thread", "tandem", "could not be started; running unshared");
  g_session.store(SessionState::kOff, std::memory_order_release);
}

Attachment attach(int timeout_ms) {
  const auto [outcome, channel] = attach_to_daemon(g_settings, g_hello, timeout_ms);
  if (outcome != Attachment::kMade) return outcome;
  partition::obey(channel->command->memory,
                  g_session.load(std::memory_order_relaxed) == SessionState::kStarting);
  g_hello.abilities |= wire::kAbilityHasSet;
  g_hello.job_id = channel->job_id;  // lets the next daemon recognise what the job has
  swap::begin_counting_pools();
  auto& shared = channel->state->memory;
  shared.device_bytes.store(memory::used_bytes(), std::memory_order_relaxed);
  shared.peak_bytes.store(memory::used_bytes(), std::memory_order_relaxed);
  g_channel.store(channel, std::memory_order_release);
  swap::publish_bytes();
  return outcome;
}

void lose_channel() {
  Channel* channel = g_channel.load(std::memory_order_relaxed);
  if (!channel) return;
  memory::limit_bytes();  // keeps the last limit
  g_channel.store(nullptr, std::memory_order_release);
  channel->gate.lose();
  channel->socket.drop();
}

}  // namespace tandem::shim
