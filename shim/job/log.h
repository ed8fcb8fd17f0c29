// Prints one line to stderr, once per process, without heap or stdio, since the shim is a guest.
// Prints none if TANDEM_LOG says so, or if that would wait for a reader of a pipe, or find none.
#pragma once

#include <cstdint>

namespace tandem::shim {

// Suppresses all output from now on.
void say_nothing();
// Prints "tandem: <what> '<value>' <rest>\n" unless this process has already printed its line.
void say_once(const char* what, const char* value, const char* rest);
// The same with "tandem: <text>\n" and with "tandem: <what>: <why>\n".
void say_once(const char* text);
void say_once(const char* what, const char* why);
// The same with "tandem: <before> <bytes in MiB> MiB <after>\n".
void say_mib_once(const char* before, uint64_t bytes, const char* after);

}  // namespace tandem::shim
