// Turns an ordinary child process of some client into the one device process of a directory.
#pragma once

#include <string>

#include "settings.h"
#include "unique_fd.h"

namespace tandem::softgpu {

// Closes every inherited descriptor above stderr except keep_fd.
void close_inherited(int keep_fd);

// Each of these returns the error, empty if there is none.
[[nodiscard]] std::string take_directory(const std::string& dir, UniqueFd* lock);
[[nodiscard]] std::string listen_in(const std::string& dir, bool for_all, UniqueFd* listener);
[[nodiscard]] std::string open_timeline(const std::string& path, UniqueFd* timeline);

// Detaches from the client that started this process: leaves its session, and redirects output to
// DIR/softgpu.log.
[[nodiscard]] std::string leave_parent(const std::string& dir);

void say_ready(int fd);  // writes one byte and closes it; does nothing for -1
void remove_socket(const std::string& dir);

}  // namespace tandem::softgpu
