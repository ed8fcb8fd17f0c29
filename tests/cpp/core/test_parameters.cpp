// Names as g++ and nvcc mangle them, and the buffers derived from them.
#include <string>
#include <vector>

#include "check.h"
#include "dag/parameters.h"

namespace {

using namespace tandem::dag;

// P a pointer, C a pointer to const, + after either if it points to plain data; - any other; ... a
// pack.
std::string types_in(const std::string& name) {
  std::vector<ParameterType> found;
  bool is_open = false;
  if (!parameters_in(name, &found, &is_open)) return "?";
  std::string out;
  for (const ParameterType& type : found) {
    out += !type.is_pointer ? "-" : type.to_const ? "C" : "P";
    if (type.to_plain) out += "+";
  }
  return is_open ? out + "..." : out;
}

const std::vector<Allocation> kKnown{{0x7000'0000'0000, 0x1000}, {0x7000'0010'0000, 0x100}};

Touched touched(const std::string& name, const std::vector<uint64_t>& bytes,
                const std::vector<uint64_t>& words, bool is_cut = false) {
  return touched_by({bytes.data(), bytes.size(), words.data(), words.size(), is_cut}, name, kKnown);
}

}  // namespace

#define CHECK_NAME(name, types) CHECK(types_in(name) == (types))

TEST(pointers_to_const_are_told_from_const_pointers) {
  CHECK_NAME("_Z4vaddPKfS0_Pfi", "C+C+P+-");  // (float const*, float const*, float*, int)
  CHECK_NAME("_Z1fPfPKfPVKi", "P+C+C+");      // a const pointer is mangled like a plain one
  CHECK_NAME("_Z1fPKPf", "C");                // (float* const*)
  CHECK_NAME("_Z1fPPKf", "P");                // (float const**)
  CHECK_NAME("_Z1fRKfRfOi", "C+P+P+");
  CHECK_NAME("_Z1fv", "");
  CHECK_NAME("_Z1fPvPKv", "PC");  // it may point to anything
}

TEST(substitutions_stand_for_what_they_replace) {
  CHECK_NAME("_Z1fPKdS0_PdS1_", "C+C+P+P+");
  CHECK_NAME("_ZN2at6native4copyEPKfPfS2_S3_", "C+P+C+P+");
  CHECK_NAME("_Z1f6float4PKS_PS_", "-C+P+");
  CHECK_NAME("_Z1fN1A1BEPKS0_PS0_", "-CP");
  CHECK_NAME("_Z1fSt6vectorIfSaIfEEPKS1_PS1_", "-CP");
  CHECK_NAME("_Z1fPKcS0_S0_PKiS2_", "C+C+C+C+C+");
}

TEST(parameters_of_templates_are_those_of_the_instance) {
  CHECK_NAME("_Z1fIfEvPT_PKS0_", "P+C+");  // template<class T> void f(T*, T const*)
  CHECK_NAME("_Z1fIKfEvPT_", "C+");        // with T = float const
  CHECK_NAME("_Z1fIPKfEvT_", "C+");
  CHECK_NAME("_Z1fIfLi4ELb1EEvPT_i", "P+-");
  CHECK_NAME("_Z1fIN1A1BEEvPKT_S4_", "CC");
  CHECK_NAME("_Z1fIJifEEvPKfDpT_", "C+...");  // a pack ends the list
  CHECK_NAME(
      "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_"
      "11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
      "---");
  CHECK_NAME("_ZN3cub18DeviceReduceKernelIPKfPfiEEvT_T0_T1_", "C+P+-");
}

TEST(other_types_take_their_place_in_the_list) {
  CHECK_NAME("_Z1fPFvPKiEPi", "PP+");     // a pointer to a function, and one to int
  CHECK_NAME("_Z1fM1AKFivEPKf", "-C+");   // a pointer to a member function
  CHECK_NAME("_Z1fPA4_KfPA8_f", "C+P+");  // pointers to arrays
  CHECK_NAME("_Z1fDF16_PDF16_PK6__half", "-P+C+");
  CHECK_NAME("_Z1fDv4_fPKDv4_f", "-C+");
  CHECK_NAME("_Z1fxPKyb", "-C+-");
  CHECK_NAME("_ZZ4mainENKUlPKfE_clES0_", "C+");  // a lambda's operator()
  CHECK_NAME("_ZN12_GLOBAL__N_11fEPKf", "C+");
  CHECK_NAME("_ZL1fPKf", "C+");
  CHECK_NAME("_Z1fPKf.kernel", "C+");
}

TEST(of_a_name_that_is_not_understood_nothing_is_said) {
  for (const char* name :
       {"", "saxpy", "_Z", "_Z1", "_Z9short", "_Z1fS_", "_Z1fT_", "_Z1fP", "_ZN1A1f",
        "_Z1fIXgtLi1ELi0EEEvPKf", "_Z1f\xff", "_Z99999999999999999999f"}) {
    CHECK_NAME(name, "?");
  }
  CHECK_NAME("_Z1f" + std::string(100'000, 'P') + "f", "?");
}

TEST(words_in_known_allocations_are_buffers) {
  const uint64_t a = 0x7000'0000'0010, b = 0x7000'0010'0000;

  const Touched found = touched("_Z1fPKfPfi", {8, 8, 4}, {a, b, 7});

  CHECK(found.coverage == Coverage::kAll);
  CHECK_EQ(found.buffers.size(), 2u);
  CHECK(found.buffers[0].address == a && found.buffers[0].bytes == 0xff0);
  CHECK(found.buffers[0].allocation == 0x7000'0000'0000 && found.buffers[0].is_const);
  CHECK(found.buffers[1].parameter == 1 && !found.buffers[1].is_const);
}

TEST(the_end_of_an_allocation_is_not_in_it) {
  const Touched found = touched("_Z1fPf", {8}, {0x7000'0000'1000});

  CHECK(found.buffers.empty());
  CHECK(found.coverage == Coverage::kUnknown);
}

TEST(a_null_pointer_and_numbers_are_no_buffers) {
  double pi = 3.14;
  uint64_t bits;
  __builtin_memcpy(&bits, &pi, sizeof(bits));

  const Touched found = touched("_Z1fPfldi", {8, 8, 8, 4}, {0, 1 << 20, bits, 7});

  CHECK(found.buffers.empty());
  CHECK(found.coverage == Coverage::kAll);
}

TEST(structures_may_write_to_what_they_point_to) {
  const uint64_t a = 0x7000'0000'0000;

  const Touched found = touched("_Z1f1APKf", {24, 8}, {5, a, 9, a});

  CHECK(found.coverage == Coverage::kDirect);
  CHECK_EQ(found.buffers.size(), 2u);
  CHECK(!found.buffers[0].is_const && found.buffers[1].is_const);
  CHECK_EQ(found.buffers[0].parameter, 0u);
}

TEST(names_that_say_nothing_make_everything_writable) {
  const Touched found = touched("saxpy", {8, 4}, {0x7000'0000'0000, 3});

  CHECK(found.coverage == Coverage::kDirect);
  CHECK(found.buffers.size() == 1 && !found.buffers[0].is_const);
}

TEST(pointers_to_pointers_may_lead_anywhere) {
  CHECK(touched("_Z1fPPf", {8}, {0x7000'0000'0000}).coverage == Coverage::kDirect);
}

TEST(a_declared_signature_stands_for_the_name) {
  const std::vector<ParameterType> signature{{true, true, true}};
  const uint64_t layout = 8, word = 0x7000'0000'0000;

  const Touched found = touched_by({&layout, 1, &word, 1, false}, &signature, kKnown);

  CHECK(found.coverage == Coverage::kAll && found.buffers[0].is_const);
}

TEST(what_is_missing_or_does_not_fit_is_unknown) {
  const uint64_t a = 0x7000'0000'0000;
  CHECK(touched("_Z1fPf", {8}, {a}, true).coverage == Coverage::kUnknown);
  CHECK(touched("_Z1fPfPf", {8, 8}, {a}).coverage == Coverage::kUnknown);
  CHECK(touched("_Z1fPf", {8}, {a, a}).coverage == Coverage::kUnknown);
  CHECK(touched("_Z1fm", {8}, {0x7fff'0000'0000}).coverage == Coverage::kUnknown);  // an address?
  // One parameter more than the name has, so the name is not this function's.
  CHECK(!touched("_Z1fPKf", {8, 8}, {a, a}).buffers[0].is_const);
}
