// One line to stderr, once a process, without heap or stdio: the shim is a guest. None where TANDEM_LOG says so.
#pragma once

namespace tandem::shim {

// From now on nothing is printed.
void say_nothing();
// Prints "tandem: <what> '<value>' <rest>\n" unless this process already printed its line.
void say_once(const char* what, const char* value, const char* rest);
// The same with "tandem: <text>\n", and with "tandem: <what>: <why>\n".
void say_once(const char* text);
void say_once(const char* what, const char* why);

}  // namespace tandem::shim
