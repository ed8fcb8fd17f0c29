// Compares the functions that dlsym and cuGetProcAddress return for each name.
//
//   agreement NAMES
//
// NAMES has a line for each function of the driver: base name, exported name, the version since
// which the base name means it, and 1 if it is the variant for the per-thread default stream.
#include <fstream>
#include <map>

#include "facts.h"

namespace {

constexpr size_t kMostNames = 40;  // in each list of the answer

// An object with up to kMostNames names, and what was found instead of each; `count` counts all.
struct Names {
  size_t count = 0;
  Json list;
  void add(const std::string& name, const std::string& instead) {
    if (count++ < kMostNames) list.add(name.c_str(), instead);
  }
};

std::string symbol_at(void* place) {
  Dl_info info;
  if (dladdr(place, &info) == 0 || info.dli_sname == nullptr) return "no symbol";
  return info.dli_saddr == place ? info.dli_sname : "inside " + std::string(info.dli_sname);
}

}  // namespace

int main(int, char** arguments) {
  check(DRIVER(cuInit, "cuInit")(0), "cuInit");
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  const auto look_up = DRIVER(cuGetProcAddress_v2, "cuGetProcAddress");
  std::ifstream lines(arguments[1]);
  std::string base, exported;
  int since = 0, per_thread = 0;
  size_t same = 0, neither = 0;
  Names different, only_exported, only_looked_up;
  std::map<std::string, size_t> statuses;
  while (lines >> base >> exported >> since >> per_thread) {
    void* const by_name = dlsym(driver, exported.c_str());
    void* by_look_up = nullptr;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    const cuuint64_t flags =
        per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_DEFAULT;
    const CUresult result = look_up(base.c_str(), &by_look_up, since, flags, &status);
    if (result != CUDA_SUCCESS) by_look_up = nullptr;
    if (by_look_up == nullptr) statuses[name_of(result) + " " + std::to_string((int)status)]++;
    if (by_name == nullptr && by_look_up == nullptr) neither++;
    else if (by_name == by_look_up) same++;
    else if (by_look_up == nullptr) only_exported.add(exported, "nothing");
    else if (by_name == nullptr) only_looked_up.add(exported, symbol_at(by_look_up));
    else different.add(exported, symbol_at(by_look_up));
  }
  Json answers;
  for (const auto& [status, count] : statuses) answers.add(status.c_str(), (double)count);
  Json()
      .add("same", (double)same)
      .add("different", (double)different.count)
      .add("only_exported", (double)only_exported.count)
      .add("only_looked_up", (double)only_looked_up.count)
      .add("neither", (double)neither)
      .add("refusals", answers)
      .add("names", Json()
                        .add("different", different.list)
                        .add("only_exported", only_exported.list)
                        .add("only_looked_up", only_looked_up.list))
      .print();
}
