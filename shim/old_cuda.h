// Declares what the shim uses by name but the oldest supported versions of cuda.h lack. Calls that
// only a newer header declares need nothing here: they are left out (generate_entries.py).
#pragma once

#include <cuda.h>

#if CUDA_VERSION < 12050
extern "C" CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext* context, CUgreenCtx* green);
#endif
#if CUDA_VERSION < 12080
extern "C" CUresult cuStreamGetDevice(CUstream stream, CUdevice* device);
inline constexpr unsigned CU_MEMCPY_OPERAND_TYPE_ARRAY = 2;
#endif
