// For the path that every launch takes: inlined into the caller, however large that grows. GCC
// stops inlining once a translation unit has grown by 40 %, in whatever order it reaches the calls,
// and the shim's entry points are one large unit. Without optimisation, as in tests, forced
// inlining would only double the compile time.
#pragma once

#ifdef __OPTIMIZE__
#define ALWAYS_INLINE __attribute__((always_inline)) inline
#else
#define ALWAYS_INLINE inline
#endif
