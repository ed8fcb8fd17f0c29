// What a device process was started as, for people who read its timeline later: DIR/softgpu.json.
#pragma once

#include <string>

#include "settings.h"

namespace tandem::softgpu {

std::string about_json(const Settings& settings);
// The error, empty when there is none. The file lies there whole or not at all.
[[nodiscard]] std::string write_about(const Settings& settings);

}  // namespace tandem::softgpu
