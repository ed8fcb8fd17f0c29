// Every supported opcode, in alphabetical order.
#include <algorithm>

#include "ops.h"

namespace softgpu::ptx {
namespace {

struct Row {
  std::string_view opcode;
  Decoder decode;
};

constexpr Row kTable[] = {
    {"abs", decode_abs},
    {"activemask", decode_activemask},
    {"add", decode_add},
    {"addc", decode_addc},
    {"and", decode_and},
    {"applypriority", decode_nothing},
    {"atom", decode_atom},
    {"bar", decode_barrier},
    {"barrier", decode_barrier},
    {"bfe", decode_bfe},
    {"bfi", decode_bfi},
    {"bfind", decode_bfind},
    {"bmsk", decode_bmsk},
    {"bra", decode_bra},
    {"brev", decode_brev},
    {"brkpt", decode_trap},
    {"brx", decode_brx},
    {"call", decode_call},
    {"clz", decode_clz},
    {"cnot", decode_cnot},
    {"copysign", decode_copysign},
    {"cos", decode_function},
    {"cvt", decode_cvt},
    {"cvta", decode_cvta},
    {"discard", decode_nothing},
    {"div", decode_div},
    {"dp2a", decode_dp2a},
    {"dp4a", decode_dp4a},
    {"elect", decode_elect},
    {"ex2", decode_function},
    {"exit", decode_exit},
    {"fence", decode_nothing},
    {"fma", decode_fma},
    {"fns", decode_fns},
    {"getctarank", decode_getctarank},
    {"griddepcontrol", decode_nothing},
    {"isspacep", decode_isspacep},
    {"ld", decode_ld},
    {"ldu", decode_ld},
    {"lg2", decode_function},
    {"lop3", decode_lop3},
    {"mad", decode_mad},
    {"mad24", decode_mad24},
    {"madc", decode_madc},
    {"mapa", decode_mapa},
    {"match", decode_match},
    {"max", decode_max},
    {"membar", decode_nothing},
    {"min", decode_min},
    {"mov", decode_mov},
    {"mul", decode_mul},
    {"mul24", decode_mul24},
    {"nanosleep", decode_nanosleep},
    {"neg", decode_neg},
    {"not", decode_not},
    {"or", decode_or},
    {"pmevent", decode_nothing},
    {"popc", decode_popc},
    {"prefetch", decode_nothing},
    {"prefetchu", decode_nothing},
    {"prmt", decode_prmt},
    {"rcp", decode_function},
    {"red", decode_red},
    {"redux", decode_redux},
    {"rem", decode_rem},
    {"ret", decode_ret},
    {"rsqrt", decode_function},
    {"sad", decode_sad},
    {"selp", decode_selp},
    {"set", decode_set},
    {"setp", decode_setp},
    {"shf", decode_shf},
    {"shfl", decode_shfl},
    {"shl", decode_shl},
    {"shr", decode_shr},
    {"sin", decode_function},
    {"slct", decode_slct},
    {"sqrt", decode_function},
    {"st", decode_st},
    {"sub", decode_sub},
    {"subc", decode_subc},
    {"szext", decode_szext},
    {"tanh", decode_function},
    {"testp", decode_testp},
    {"trap", decode_trap},
    {"vote", decode_vote},
    {"xor", decode_xor},
};

}  // namespace

Decoder find_decoder(std::string_view opcode) {
  const auto* found =
      std::lower_bound(std::begin(kTable), std::end(kTable), opcode,
                       [](const Row& row, std::string_view name) { return row.opcode < name; });
  return found != std::end(kTable) && found->opcode == opcode ? found->decode : nullptr;
}

}  // namespace softgpu::ptx
