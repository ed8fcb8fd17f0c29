// Records what a device process was started as, for people who read its timeline later:
// DIR/softgpu.json.
#pragma once

#include <string>

#include "settings.h"

namespace tandem::softgpu {

std::string about_json(const Settings& settings);
// Returns the error, empty if there is none. The file appears whole or not at all.
[[nodiscard]] std::string write_about(const Settings& settings);

}  // namespace tandem::softgpu
