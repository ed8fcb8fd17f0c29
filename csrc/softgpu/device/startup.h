// From an ordinary child of some client to the one device process of a directory.
#pragma once

#include <string>

#include "settings.h"
#include "unique_fd.h"

namespace tandem::softgpu {

// Closes every descriptor above stderr that was inherited, but keep_fd.
void close_inherited(int keep_fd);

// Each returns the error, empty when there is none.
[[nodiscard]] std::string take_directory(const std::string& dir, UniqueFd* lock);
[[nodiscard]] std::string listen_in(const std::string& dir, bool for_all,
                                    UniqueFd* listener);
[[nodiscard]] std::string open_timeline(const std::string& path, UniqueFd* timeline);

// Lets go of the client that started this process: its session and its output, which goes to
// DIR/softgpu.log from here on.
[[nodiscard]] std::string leave_parent(const std::string& dir);

void say_ready(int fd);  // writes one byte and closes it; nothing for -1
void remove_socket(const std::string& dir);

}  // namespace tandem::softgpu
