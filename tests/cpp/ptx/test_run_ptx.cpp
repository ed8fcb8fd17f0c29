// Kernels run by the interpreter alone, without a driver, for the sanitizers.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "check.h"
#include "ptx/load.h"
#include "ptx/run.h"

using namespace softgpu::ptx;

namespace {

struct Outcome {
  CUresult error;
  Counters counters;
};

std::unique_ptr<Program> program(const std::string& name) {
  std::ifstream in("tests/data/ptx/" + name + ".ptx", std::ios::binary);  // from the root
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return load(text);
}

// Each argument has at most 8 bytes, at its own offset.
Outcome run(const Program& of, const std::string& name, uint32_t blocks, uint32_t threads,
            const std::vector<uint64_t>& arguments, uint32_t shared_bytes = 0) {
  const Function& kernel = *of.functions.at(name);
  alignas(16) char params[256] = {};
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::memcpy(params + kernel.params[i].offset, &arguments[i], kernel.params[i].bytes);
  }
  const Launch launch{&of, &kernel, {blocks, 1, 1}, {threads, 1, 1}, params, shared_bytes, 8, 1};
  Grid grid(launch);
  CHECK(grid.has_memory());
  const CUresult error = grid.run();
  return {error, grid.counters()};
}

template <class T>
uint64_t address(std::vector<T>& values) {
  return reinterpret_cast<uint64_t>(values.data());
}

}  // namespace

TEST(a_sort_in_shared_memory_sorts) {
  std::vector<uint64_t> keys(256);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = (i * 0x9e3779b97f4a7c15u) >> 3;
  std::vector<uint64_t> sorted = keys;
  std::sort(sorted.begin(), sorted.end());
  CHECK_EQ(run(*program("shared"), "bitonic_sort", 1, 256, {address(keys), 256}, 2048).error,
           CUDA_SUCCESS);
  CHECK(keys == sorted);
}

TEST(costs_are_counted_by_lane_and_by_sector) {
  std::vector<float> a(100, 1), b(100, 2), c(128, 0);
  const Outcome done =
      run(*program("elementwise"), "vector_add", 2, 64, {address(a), address(b), address(c), 100});
  CHECK_EQ(done.error, CUDA_SUCCESS);
  CHECK_EQ(c[99], 3.0f);
  CHECK_EQ(c[100], 0.0f);
  CHECK_EQ(done.counters.flops, 100u);
  // 400 bytes of each of three arrays, in sectors of 32 bytes; the first may begin inside a sector.
  CHECK(done.counters.sectors >= 3 * 13 && done.counters.sectors <= 3 * 17);
}

TEST(calls_recursion_and_divergence_keep_to_their_memory) {
  const auto control = program("control");
  std::vector<uint32_t> fibonacci(64);
  CHECK_EQ(run(*control, "recursion", 1, 64, {address(fibonacci)}).error, CUDA_SUCCESS);
  CHECK_EQ(fibonacci[11], 89u);
  std::vector<float> x(40, 3);
  std::vector<int> which(40, 1);
  CHECK_EQ(run(*control, "through_pointers", 1, 40, {address(x), address(which)}).error,
           CUDA_SUCCESS);
  CHECK_EQ(x[39], 9.0f);
  std::vector<int> lock(1), count(1);
  CHECK_EQ(run(*control, "locked", 1, 64, {address(lock), address(count)}).error, CUDA_SUCCESS);
  CHECK_EQ(count[0], 64);
}

TEST(pieces_of_numbers_are_right_under_every_sanitizer) {
  std::vector<double> x{0.5, -3.25, 1e-8, 20}, out(48);
  CHECK_EQ(run(*program("numeric"), "functions", 1, 32, {address(x), address(out), 4}).error,
           CUDA_SUCCESS);
  CHECK(out[3] > 1.6487 && out[3] < 1.6488);
  std::vector<int64_t> a{INT64_MIN, -1, 7}, b{-1, 63, 0}, wide(24);
  CHECK_EQ(run(*program("numeric"), "wide_integers", 1, 3, {address(a), address(b), address(wide)})
               .error,
           CUDA_SUCCESS);
  CHECK_EQ(wide[0], INT64_MIN);
}

TEST(what_a_kernel_may_not_touch_ends_it) {
  const auto control = program("control");
  std::vector<int> out(32);
  CHECK_EQ(run(*control, "beyond_shared", 1, 32, {1 << 20, address(out)}).error,
           CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK_EQ(run(*control, "poke", 1, 1, {address(out) + 1, 4}).error, CUDA_ERROR_MISALIGNED_ADDRESS);
  CHECK_EQ(run(*control, "trap", 1, 1, {}).error, CUDA_ERROR_LAUNCH_FAILED);
}

TEST(many_blocks_meet_and_a_grid_too_large_to_be_there_is_an_error) {
  const auto cooperative = program("cooperative");
  const Function& kernel = *cooperative->functions.at("neighbours");
  std::vector<uint32_t> cells(1000 * 32, 1), next(cells.size());
  char params[20];
  const uint64_t pointers[2] = {address(cells), address(next)};
  const int steps = 2;
  std::memcpy(params, pointers, sizeof pointers);
  std::memcpy(params + sizeof pointers, &steps, sizeof steps);
  Launch launch{cooperative.get(), &kernel, {1000, 1, 1}, {32, 1, 1}, params, 0, 8, 1, 0, 64, true};
  CHECK_EQ(Grid(launch).run(), CUDA_SUCCESS);
  CHECK(cells == std::vector<uint32_t>(cells.size(), 4));
  launch.dynamic_shared_bytes = 2 << 20;  // 2 GiB for 1000 blocks
  Grid large(launch);
  CHECK_EQ(large.run(), CUDA_ERROR_OUT_OF_MEMORY);
}
