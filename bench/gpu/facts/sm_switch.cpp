// What going from one set of SMs to another costs, and what belongs to the set that it was made in. Each
// line of stdin has the action done.
//
//   sm_switch IMAGE costs | handles | graphs
#include "green.h"
#include "talk.h"

namespace {

struct Halves {
  Split split = split_sms(1);
  size_t middle = check_halves();
  Green first{split.groups.data(), (unsigned)middle};
  Green second{split.groups.data() + middle, (unsigned)(split.groups.size() - middle)};

  Halves() {
    check(first.result, "first green context");
    check(second.result, "second green context");
  }
  size_t check_halves() const {
    check(split.result, "split");
    if (split.groups.size() < 2) check(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "two groups");
    return split.groups.size() / 2;
  }
};

CUstream plain_stream() {
  CUstream stream;
  check(DRIVER(cuStreamCreate, "cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING), "stream");
  return stream;
}

// Launching into one stream after the other, each time behind a host that has waited for the last one.
Json launches(CUfunction function, const std::vector<CUstream>& streams) {
  auto* const launch = DRIVER(cuLaunchKernel, "cuLaunchKernel");
  auto* const synchronize = DRIVER(cuStreamSynchronize, "cuStreamSynchronize");
  CUdeviceptr spans;
  check(DRIVER(cuMemAlloc_v2, "cuMemAlloc")(&spans, 64), "cuMemAlloc");
  unsigned most = 1;
  unsigned long long run_ns = 0, jump_ns = UINT64_MAX;
  void* parameters[] = {&spans, &most, &run_ns, &jump_ns};
  std::vector<double> launch_us, all_us;
  for (int i = -20; i < 400; i++) {
    const CUstream stream = streams[(size_t)(i + 20) % streams.size()];
    const uint64_t start_ns = now_ns();
    check(launch(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr), "launch");
    const double launched = us_since(start_ns);
    check(synchronize(stream), "synchronize");
    if (i < 0) continue;
    launch_us.push_back(launched);
    all_us.push_back(us_since(start_ns));
  }
  return Json()
      .add("launch_us", median(launch_us))
      .add("launch_p99_us", quantile(launch_us, 0.99))
      .add("done_us", median(all_us))
      .add("done_p99_us", quantile(all_us, 0.99));
}

// From the end of a kernel in `from` to the beginning of the next one in `to`, which waits for it by an
// event, as the shim changes sets under a job's stream. Us, by the device's clock.
Json handover(CUfunction stamp, CUstream from, CUstream to) {
  auto* const launch = DRIVER(cuLaunchKernel, "cuLaunchKernel");
  CUevent event;
  check(DRIVER(cuEventCreate, "cuEventCreate")(&event, CU_EVENT_DISABLE_TIMING), "event");
  CUdeviceptr spans;
  check(DRIVER(cuMemAlloc_v2, "cuMemAlloc")(&spans, 64), "cuMemAlloc");
  std::vector<double> gaps_us;
  for (int i = 0; i < 100; i++) {
    for (int k = 0; k < 2; k++) {
      CUdeviceptr own = spans + k * 32;
      unsigned most = 1;
      unsigned long long run_ns = 30000, jump_ns = UINT64_MAX;
      void* parameters[] = {&own, &most, &run_ns, &jump_ns};
      check(launch(stamp, 1, 1, 1, 32, 1, 1, 0, k == 0 ? from : to, parameters, nullptr), "launch");
      if (k == 1 || from == to) continue;
      check(DRIVER(cuEventRecord, "cuEventRecord")(event, from), "record");
      check(DRIVER(cuStreamWaitEvent, "cuStreamWaitEvent")(to, event, 0), "wait");
    }
    check(DRIVER(cuStreamSynchronize, "cuStreamSynchronize")(to), "synchronize");
    uint64_t words[8];
    check(DRIVER(cuMemcpyDtoH_v2, "cuMemcpyDtoH")(words, spans, sizeof words), "copy");
    gaps_us.push_back((double)(int64_t)(words[5] - words[2]) / 1e3);
  }
  return Json().add("gap_us", median(gaps_us)).add("gap_p99_us", quantile(gaps_us, 0.99));
}

void costs(CUmodule module) {
  CUfunction stamp;
  check(DRIVER(cuModuleGetFunction, "cuModuleGetFunction")(&stamp, module, "stamp"), "stamp");
  Json found = event("result");
  const uint64_t start_ns = now_ns();
  split_sms(1);
  found.add("split_us", us_since(start_ns));
  Halves halves;
  std::vector<double> create_us, stream_us, destroy_us;
  for (int i = 0; i < 8; i++) {
    Green one(halves.split.groups.data(), 1);
    check(one.result, "green context");
    create_us.push_back(one.create_us);
    stream_us.push_back(one.stream_us);
    destroy_us.push_back(one.destroy());
  }
  found.add("first_create_us", halves.first.create_us).add("create_us", median(create_us));
  found.add("stream_us", median(stream_us)).add("destroy_us", median(destroy_us));
  const CUstream plain = plain_stream(), other = plain_stream();
  const CUstream first = halves.first.stream, second = halves.second.stream;
  found.add("same_stream", launches(stamp, {plain}));
  found.add("same_green_stream", launches(stamp, {first}));
  found.add("two_streams", launches(stamp, {plain, other}));
  found.add("two_sets", launches(stamp, {first, second}));
  found.add("whole_and_set", launches(stamp, {plain, first}));
  found.add("handover_same_stream", handover(stamp, plain, plain));
  found.add("handover_two_streams", handover(stamp, plain, other));
  found.add("handover_two_sets", handover(stamp, first, second));
  found.add("handover_whole_to_set", handover(stamp, plain, first));
  found.print();
}

std::string which(CUcontext found, CUcontext primary, const Halves& halves) {
  if (found == nullptr) return "null";
  if (found == primary) return "primary";
  if (found == halves.first.context) return "first set";
  return found == halves.second.context ? "second set" : "another";
}

// Where the blocks of a launch ran.
std::string place_of(const std::vector<uint64_t>& seen, const std::vector<uint64_t>& first,
                     const std::vector<uint64_t>& second) {
  const auto within = [&](const std::vector<uint64_t>& set) {
    return std::includes(set.begin(), set.end(), seen.begin(), seen.end());
  };
  if (seen.empty()) return "nowhere";
  if (within(first)) return "first set";
  return within(second) ? "second set" : "elsewhere";
}

// A launch and where it ran, or the name of the refusal.
std::string tried(Where* where, CUstream stream, CUfunction function,
                  const std::vector<uint64_t>& first, const std::vector<uint64_t>& second) {
  where->forget();
  const CUresult result = where->launch(stream, function);
  return result == CUDA_SUCCESS ? place_of(where->seen(stream), first, second) : name_of(result);
}

void handles(CUmodule module, const char* path) {
  const auto set_current = DRIVER(cuCtxSetCurrent, "cuCtxSetCurrent");
  CUcontext primary = nullptr, of_stream = nullptr;
  CUgreenCtx green_of_stream = nullptr;
  check(DRIVER(cuCtxGetCurrent, "cuCtxGetCurrent")(&primary), "cuCtxGetCurrent");
  Halves halves;
  Where where(module);
  const CUstream plain = plain_stream(), in_first = halves.first.stream;
  const std::vector<uint64_t> first = where.run(in_first), second = where.run(halves.second.stream);
  Json found = event("result");
  const CUresult asked =
      DRIVER(cuStreamGetCtx_v2, "cuStreamGetCtx")(in_first, &of_stream, &green_of_stream);
  found.add("stream_context", asked == CUDA_SUCCESS ? which(of_stream, primary, halves) : name_of(asked));
  found.add("stream_green", green_of_stream == halves.first.green ? "its own" : "another");
  const auto trial = [&](CUstream stream, CUfunction function) {
    return tried(&where, stream, function, first, second);
  };
  found.add("primary_function_in_set", trial(in_first, where.function()));

  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  check(DRIVER(cuLibraryLoadFromFile, "cuLibraryLoadFromFile")(&library, path, nullptr, nullptr, 0,
                                                               nullptr, nullptr, 0),
        "library");
  check(DRIVER(cuLibraryGetKernel, "cuLibraryGetKernel")(&kernel, library, "where"), "kernel");
  found.add("kernel_in_set", trial(in_first, (CUfunction)kernel));
  found.add("kernel_in_primary", trial(plain, (CUfunction)kernel));

  found.add("set_becomes_current", name_of(set_current(halves.first.context)));
  CUmodule own = nullptr;
  CUfunction function = nullptr;
  check(DRIVER(cuModuleLoad, "cuModuleLoad")(&own, path), "cuModuleLoad");
  check(DRIVER(cuModuleGetFunction, "cuModuleGetFunction")(&function, own, "where"), "function");
  found.add("primary_function_while_set_current", trial(in_first, where.function()));
  found.add("kernel_while_set_current", trial(in_first, (CUfunction)kernel));
  found.add("set_function_in_set", trial(in_first, function));
  found.add("set_function_in_other_set", trial(halves.second.stream, function));
  check(set_current(primary), "cuCtxSetCurrent");
  found.add("set_function_in_primary", trial(plain, function));
  CUevent event;
  check(DRIVER(cuEventCreate, "cuEventCreate")(&event, CU_EVENT_DISABLE_TIMING), "event");
  found.add("primary_event_in_set", name_of(DRIVER(cuEventRecord, "cuEventRecord")(event, in_first)));
  found.add("primary_waits_for_it",
            name_of(DRIVER(cuStreamWaitEvent, "cuStreamWaitEvent")(plain, event, 0)));
  check(DRIVER(cuCtxSynchronize, "cuCtxSynchronize")(), "synchronize");
  found.print();
}

struct Captured {
  CUgraphExec executable = nullptr;
  CUcontext node_context = nullptr;
  CUresult asked = CUDA_SUCCESS;
};

Captured capture(Where* where, CUstream stream) {
  CUgraph graph;
  check(DRIVER(cuStreamBeginCapture_v2, "cuStreamBeginCapture")(
            stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
        "begin");
  check(where->launch(stream), "launch");
  check(DRIVER(cuStreamEndCapture, "cuStreamEndCapture")(stream, &graph), "end");
  CUgraphNode node;
  size_t count = 1;
  check(DRIVER(cuGraphGetNodes, "cuGraphGetNodes")(graph, &node, &count), "nodes");
  Captured found;
  CUDA_KERNEL_NODE_PARAMS_v2 parameters = {};
  found.asked = DRIVER(cuGraphKernelNodeGetParams_v2, "cuGraphKernelNodeGetParams")(node, &parameters);
  found.node_context = parameters.ctx;
  check(DRIVER(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags")(&found.executable, graph, 0),
        "instantiate");
  return found;
}

void graphs(CUmodule module) {
  CUcontext primary = nullptr;
  check(DRIVER(cuCtxGetCurrent, "cuCtxGetCurrent")(&primary), "cuCtxGetCurrent");
  Halves halves;
  Where where(module);
  const CUstream plain = plain_stream();
  const CUstream in_first = halves.first.stream, in_second = halves.second.stream;
  const std::vector<uint64_t> first = where.run(in_first), second = where.run(in_second);
  const auto launch = DRIVER(cuGraphLaunch, "cuGraphLaunch");
  Json found = event("result");
  found.add("set_sms", (uint64_t)first.size());
  const auto about = [&](CUstream captured_in) {
    const Captured graph = capture(&where, captured_in);
    Json said;
    said.add("node_context", graph.asked == CUDA_SUCCESS ? which(graph.node_context, primary, halves)
                                                         : name_of(graph.asked));
    const auto run = [&](const char* name, CUstream stream) {
      where.forget();
      const CUresult result = launch(graph.executable, stream);
      said.add(name, result == CUDA_SUCCESS ? place_of(where.seen(stream), first, second)
                                            : name_of(result));
    };
    run("in_first_set", in_first);
    run("in_second_set", in_second);
    run("in_primary", plain);
    return said;
  };
  found.add("captured_in_set", about(in_first));
  found.add("captured_in_primary", about(plain));
  found.print();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string action = argv[2];
  const CUmodule module = make_module(argv[1]);
  event("ready").print();
  while (next_order()) {
    if (action == "costs") {
      costs(module);
    } else if (action == "handles") {
      handles(module, argv[1]);
    } else if (action == "graphs") {
      graphs(module);
    } else {
      return 2;
    }
  }
  return 0;
}
