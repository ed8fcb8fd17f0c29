// The decoders of all instructions, by file. decode_table.cpp maps opcodes to them.
#pragma once

#include "decode.h"

namespace softgpu::ptx {

// ops_integer.cpp
void decode_add(Decode& d);
void decode_sub(Decode& d);
void decode_mul(Decode& d);
void decode_mad(Decode& d);
void decode_mul24(Decode& d);
void decode_mad24(Decode& d);
void decode_sad(Decode& d);
void decode_div(Decode& d);
void decode_rem(Decode& d);
void decode_abs(Decode& d);
void decode_neg(Decode& d);
void decode_min(Decode& d);
void decode_max(Decode& d);

// ops_carry.cpp: forms with the condition code
void decode_carry_add(Decode& d, Type type, bool reads, bool writes);
void decode_carry_sub(Decode& d, Type type, bool reads, bool writes);
void decode_carry_mad(Decode& d, Type type, bool reads, bool writes);
void decode_addc(Decode& d);
void decode_subc(Decode& d);
void decode_madc(Decode& d);

// ops_bits.cpp
void decode_and(Decode& d);
void decode_or(Decode& d);
void decode_xor(Decode& d);
void decode_not(Decode& d);
void decode_cnot(Decode& d);
void decode_shl(Decode& d);
void decode_shr(Decode& d);
void decode_shf(Decode& d);
void decode_bfe(Decode& d);
void decode_bfi(Decode& d);
void decode_bfind(Decode& d);
void decode_brev(Decode& d);
void decode_popc(Decode& d);
void decode_clz(Decode& d);
void decode_bmsk(Decode& d);
void decode_szext(Decode& d);

// ops_bytes.cpp
void decode_prmt(Decode& d);
void decode_lop3(Decode& d);
void decode_fns(Decode& d);
void decode_dp4a(Decode& d);
void decode_dp2a(Decode& d);

// ops_float.cpp: forms for f32 and f64, called by the integer decoders of the same opcode
void decode_float(Decode& d, Type type);
void decode_fma(Decode& d);
void decode_function(Decode& d);  // rcp sqrt rsqrt sin cos lg2 ex2 tanh
void decode_copysign(Decode& d);
void decode_testp(Decode& d);

// ops_half.cpp: f16, bf16 and their pairs
bool is_half(Type type);
void decode_half(Decode& d, Type type);

// ops_compare.cpp
void decode_setp(Decode& d);
void decode_set(Decode& d);
void decode_selp(Decode& d);
void decode_slct(Decode& d);

// ops_move.cpp
void decode_mov(Decode& d);
void decode_cvta(Decode& d);
void decode_isspacep(Decode& d);

// ops_convert.cpp
void decode_cvt(Decode& d);

// ops_memory.cpp, ops_atomic.cpp
void decode_ld(Decode& d);
void decode_st(Decode& d);
void decode_atom(Decode& d);
void decode_red(Decode& d);
void decode_nanosleep(Decode& d);
void decode_nothing(Decode& d);    // fences, prefetches, hints
Space take_space(Decode& d);       // kGeneric when none is named
bool take_cache_words(Decode& d);  // true: an operand with a cache policy follows

// ops_warp.cpp
void decode_shfl(Decode& d);
void decode_vote(Decode& d);
void decode_match(Decode& d);
void decode_activemask(Decode& d);
void decode_redux(Decode& d);
void decode_elect(Decode& d);

// ops_cluster.cpp
void decode_mapa(Decode& d);
void decode_getctarank(Decode& d);

// ops_control.cpp
void decode_bra(Decode& d);
void decode_brx(Decode& d);
void decode_call(Decode& d);
void decode_ret(Decode& d);
void decode_exit(Decode& d);
void decode_trap(Decode& d);
void decode_barrier(Decode& d);

}  // namespace softgpu::ptx
