// Suggests the known word that was most likely meant by a mistyped one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::softgpu {

// Returns " (did you mean 'tiny'?)", or an empty string if no word is near.
std::string did_you_mean(std::string_view typed, const std::vector<std::string_view>& words);

}  // namespace tandem::softgpu
