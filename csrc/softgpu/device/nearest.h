// For people who mistype: the known word that one most likely meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::softgpu {

// " (did you mean 'tiny'?)", or nothing when no word is near.
std::string did_you_mean(std::string_view typed, const std::vector<std::string_view>& words);

}  // namespace tandem::softgpu
