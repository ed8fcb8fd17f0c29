// For what every launch goes through: part of its caller, however large that gets. GCC stops inlining where a
// file has grown by 40 %, in whatever order it gets to the calls, and the shim's entries are one large file.
#pragma once

#define ALWAYS_INLINE __attribute__((always_inline)) inline
