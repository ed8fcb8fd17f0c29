// The outline of a PTX text: version, target, and the kernels with their performance directives.
#pragma once

#include "image.h"

namespace softgpu {

void inspect_ptx(Bytes text, Image* image);

}  // namespace softgpu
