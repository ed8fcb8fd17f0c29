// What the environment asks for. Read once per process, when it attaches; a request, never authority.
//
//   name              value                    default   effect
//   TANDEM_DISABLE    0 | 1                    0         1: every call goes straight to the driver
//   TANDEM_OBSERVE    0 | 1                    0         1: records only, no gate and no markers
//   TANDEM_MARKERS    write | event            write     how the GPU reports progress: by memory operations
//                                                        where it can, or always by events
//   TANDEM_LOG        warn | off               warn      off: suppresses even the one line of warning
//   TANDEM_SOCKET     path                     <runtime directory>/attach.sock
//   TANDEM_JOB_ID     j-<hex>                  none      the job that `tandem run` registered
//   TANDEM_PRIORITY   latency | normal | batch not set
//   TANDEM_MEMORY     12GiB | 40% | bytes      not set   limit of device memory
//                                              or HAMi's CUDA_DEVICE_MEMORY_LIMIT_0, then the one without _0
//   TANDEM_MEMORY_MIN 4GiB                     not set   memory that stays resident
//   TANDEM_PERSISTENT 4GiB                     not set   what it holds permanently; set with the next
//   TANDEM_EPHEMERAL  8GiB                     not set   the most that an iteration takes on top
//   TANDEM_WAIT_MEMORY 30s                    not set   how long an allocation may wait for memory
//   TANDEM_PREEMPTIBLE 0 | 1                   not set
//   TANDEM_SWAPPABLE 0 | 1                     not set   may be moved to the host
//   TANDEM_IDLE_RELEASE 60s | never            not set   after this idle time it gives up its memory
//   TANDEM_CHECKPOINT 0 | 1                    0         1: moved as a whole instead, by the driver
//   TANDEM_SM         30% | count              not set   share of the SMs; or HAMi's CUDA_DEVICE_SM_LIMIT_0,
//                                              then the one without _0; in percent
//   TANDEM_ISOLATION  time | mps | mps+green | mig   not set
//   TANDEM_SLO        [p99=]50ms               not set
//   TANDEM_NAME       text                     none
//   TANDEM_GROUP      text                     what one launcher starts together; default from its variables:
//                                              TORCHELASTIC_RUN_ID, or SLURM_JOB_ID and SLURM_STEP_ID
//   TANDEM_TRACE_CALLS          set by `tandem trace calls`; read in tracing.cpp
#pragma once

#include <cstdint>

#include "wire.h"

namespace tandem::shim {

struct Settings {
  bool disabled = false;
  bool observe = false;
  bool mark_by_events = false;
  char socket_path[108] = {};  // sizeof(sockaddr_un::sun_path)
  uint64_t job_id = 0;
  wire::Request request{};
  wire::Promise promise{};
  uint32_t memory_percent = 0;  // of the device, instead of request.memory_bytes
  uint32_t sm_count = 0;        // instead of request.sm_percent
  uint32_t isolation = 0;       // wire::Isolation
  uint32_t idle_release_s = 0;  // as in wire::Hello
  uint32_t mps_sms = 0;         // as in wire::Hello
};

// A wrong value prints one line on stderr and counts as the default.
Settings read_settings();

// The memory limit of a process that has not attached yet: what it asks for, if a daemon has
// registered its job with that request; else shm::kNoLimit.
uint64_t agreed_limit(uint64_t device_bytes);

// Parsers, exposed for tests: false when `text` does not have their form.
bool parse_bytes(const char* text, uint64_t* bytes);
bool parse_percent(const char* text, uint32_t* percent);
bool parse_duration_ns(const char* text, uint64_t* ns);
bool parse_job_id(const char* text, uint64_t* id);

}  // namespace tandem::shim
