// tandem-softgpu: the device process of the software GPU.
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>

#include "about.h"
#include "server.h"
#include "startup.h"

namespace {

using namespace tandem::softgpu;

int fail(const std::string& error, int exit_code) {
  std::fprintf(stderr, "tandem-softgpu: %s\n", error.c_str());
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  std::string error = read_settings(argc, argv, &settings);
  if (!error.empty()) {
    // Print the usage on a terminal only, not into a log.
    std::fprintf(stderr, "tandem-softgpu: %s\n%s", error.c_str(), isatty(2) ? usage() : "");
    return 2;
  }
  if (settings.check_only) return std::fputs(about_json(settings).c_str(), stdout) < 0;
  close_inherited(settings.ready_fd);
  UniqueFd lock, listener, timeline;
  error = take_directory(settings.dir, &lock);
  if (error.empty()) error = open_timeline(settings.timeline_path, &timeline);
  if (error.empty()) error = write_about(settings);
  if (error.empty()) error = listen_in(settings.dir, settings.serves_all, &listener);
  if (error.empty()) error = leave_parent(settings.dir);
  if (!error.empty()) return fail(error, 1);
  say_ready(settings.ready_fd);

  Server server(settings, std::move(listener), std::move(timeline));
  server.run();
  // While the lock is still held, no other process's socket can be there.
  remove_socket(settings.dir);
  return 0;
}
