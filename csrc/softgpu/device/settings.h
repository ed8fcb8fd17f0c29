// Settings of the device process: from the environment, overridden by flags. See `usage()`.
#pragma once

#include <string>

#include "faults.h"
#include "gpu.h"
#include "mig.h"
#include "profile.h"
#include "protocol.h"

namespace tandem::softgpu {

struct Settings {
  std::string dir;
  std::string timeline_path;  // empty: no timeline
  const Profile* profile = find_profile("h200");
  uint32_t device_count = 1;
  std::string mig_text, mig_name;  // as written, and by which setting
  MigLayout mig;
  ClockKind clock = ClockKind::kReal;
  Arbitration arbitration;
  uint32_t start_clients = 0;  // virtual time stays at 0 until this many have connected
  uint64_t linger_ms = 2000;   // the process ends this long after its last client
  // All users, as a GPU does; otherwise root and the user who started it.
  bool serves_all = false;
  int ready_fd = -1;  // one byte is written to it when the socket listens
  Faults faults;
  std::string faults_text;  // as written
  bool check_only = false;  // report whether the settings are valid and what they mean, then exit
};

// Reads flags and environment into `settings`. Returns the error, empty if there is none.
[[nodiscard]] std::string read_settings(int argc, char** argv, Settings* settings);

const char* usage();

}  // namespace tandem::softgpu
