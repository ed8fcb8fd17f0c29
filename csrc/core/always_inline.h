// For what every launch goes through: part of its caller, however large that gets. GCC stops inlining where a
// file has grown by 40 %, in whatever order it gets to the calls, and the shim's entries are one large file.
// Where nothing is optimised, as in tests, that would take the compiler twice as long for nothing.
#pragma once

#ifdef __OPTIMIZE__
#define ALWAYS_INLINE __attribute__((always_inline)) inline
#else
#define ALWAYS_INLINE inline
#endif
