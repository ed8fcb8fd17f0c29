// What the device process was asked to be: environment first, flags over it. See `usage()`.
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
  std::string timeline_path;  // empty: none is written
  const Profile* profile = find_profile("h200");
  uint32_t device_count = 1;
  std::string mig_text, mig_name;  // as written, and in which setting
  MigLayout mig;
  ClockKind clock = ClockKind::kReal;
  Arbitration arbitration;
  uint32_t start_clients = 0;  // virtual time stays at 0 until so many have connected
  uint64_t linger_ms = 2000;   // the process ends so long after its last client
  bool serves_all = false;     // users, as a GPU does; else root and whoever started it
  int ready_fd = -1;           // one byte is written to it when the socket listens
  Faults faults;
  std::string faults_text;  // as written
  bool check_only = false;  // say whether these settings are right, and what they mean; then end
};

// Reads flags and environment into `settings`; the error, empty when there is none.
[[nodiscard]] std::string read_settings(int argc, char** argv, Settings* settings);

const char* usage();

}  // namespace tandem::softgpu
