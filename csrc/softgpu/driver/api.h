// Included by the files that implement driver calls.
#pragma once

#include <cuda.h>

#include "runtime.h"

#define SOFTGPU_API extern "C" __attribute__((visibility("default"))) CUresult
