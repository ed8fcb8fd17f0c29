// Measures what moving from one set of SMs to another costs, and finds out which objects are bound
// to the set that they were created in. Performs the action for each line on stdin.
//
//   sm_switch IMAGE costs | handles | graphs
#include "green.h"

namespace {

struct Halves {
  Split split = split_sms(1);
  size_t middle = check_halves();
  Green first{split.groups.data(), (unsigned)middle};
  Green second{split.groups.data() + middle, (unsigned)(split.groups.size() - middle)};

  Halves() {
    need(first.result, "first green context");
    need(second.result, "second green context");
  }
  size_t check_halves() const {
    need(split.result, "cuDevSmResourceSplitByCount");
    if (split.groups.size() < 2) need(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "two groups");
    return split.groups.size() / 2;
  }
};

CUstream plain_stream() {
  CUstream stream;
  check(DRIVER(cuStreamCreate, "cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING), "stream");
  return stream;
}

// Launches into one stream after the other; the host waits for each launch before the next one.
Json launches(CUfunction function, const std::vector<CUstream>& streams) {
  auto* const launch = DRIVER(cuLaunchKernel, "cuLaunchKernel");
  auto* const synchronize = DRIVER(cuStreamSynchronize, "cuStreamSynchronize");
  CUdeviceptr spans;
  need(DRIVER(cuMemAlloc_v2, "cuMemAlloc")(&spans, 64), "cuMemAlloc");
  unsigned most = 1;
  unsigned long long run_ns = 0, jump_ns = UINT64_MAX;
  void* parameters[] = {&spans, &most, &run_ns, &jump_ns};
  std::vector<double> launch_us, all_us;
  for (int i = -20; i < 400; i++) {
    const CUstream stream = streams[(size_t)(i + 20) % streams.size()];
    const uint64_t start_ns = now_ns();
    need(launch(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr), "launch");
    const double launched = us_since(start_ns);
    need(synchronize(stream), "synchronize");
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

// Measures the time, in us of the device's clock, from the end of a kernel in `from` to the start
// of the next one in `to`, which waits for the first by an event. This is how the shim moves a
// job's stream to another set.
Json handover(CUfunction stamp, CUstream from, CUstream to) {
  auto* const launch = DRIVER(cuLaunchKernel, "cuLaunchKernel");
  CUevent event;
  need(DRIVER(cuEventCreate, "cuEventCreate")(&event, CU_EVENT_DISABLE_TIMING), "event");
  CUdeviceptr spans;
  need(DRIVER(cuMemAlloc_v2, "cuMemAlloc")(&spans, 64), "cuMemAlloc");
  std::vector<double> gaps_us;
  for (int i = 0; i < 100; i++) {
    for (int k = 0; k < 2; k++) {
      CUdeviceptr own = spans + k * 32;
      unsigned most = 1;
      unsigned long long run_ns = 30000, jump_ns = UINT64_MAX;
      void* parameters[] = {&own, &most, &run_ns, &jump_ns};
      need(launch(stamp, 1, 1, 1, 32, 1, 1, 0, k == 0 ? from : to, parameters, nullptr), "launch");
      if (k == 1 || from == to) continue;
      need(DRIVER(cuEventRecord, "cuEventRecord")(event, from), "record");
      need(DRIVER(cuStreamWaitEvent, "cuStreamWaitEvent")(to, event, 0), "wait");
    }
    need(DRIVER(cuStreamSynchronize, "cuStreamSynchronize")(to), "synchronize");
    uint64_t words[8];
    need(DRIVER(cuMemcpyDtoH_v2, "cuMemcpyDtoH")(words, spans, sizeof words), "copy");
    gaps_us.push_back((double)(int64_t)(words[5] - words[2]) / 1e3);
  }
  return Json().add("gap_us", median(gaps_us)).add("gap_p99_us", quantile(gaps_us, 0.99));
}

Json costs(const Kernels& kernels) {
  const CUfunction stamp = kernels.get("stamp");
  Json found = event("result");
  const uint64_t start_ns = now_ns();
  split_sms(1);
  found.add("split_us", us_since(start_ns));
  Halves halves;
  std::vector<double> create_us, stream_us, destroy_us;
  for (int i = 0; i < 8; i++) {
    Green one(halves.split.groups.data(), 1);
    need(one.result, "green context");
    create_us.push_back(one.create_us);
    stream_us.push_back(one.stream_us);
    destroy_us.push_back(one.destroy());
  }
  found.add("first_create_us", halves.first.create_us).add("create_us", median(create_us));
  found.add("stream_us", median(stream_us)).add("destroy_us", median(destroy_us));
  const CUstream plain = plain_stream(), other = plain_stream();
  const CUstream first = halves.first.stream, second = halves.second.stream;
  const auto launched = [&](const char* name, const std::vector<CUstream>& streams) {
    found.add(name, told([&] { return launches(stamp, streams); }));
  };
  launched("same_stream", {plain});
  launched("same_green_stream", {first});
  launched("two_streams", {plain, other});
  launched("two_sets", {first, second});
  launched("whole_and_set", {plain, first});
  const auto handed = [&](const char* name, CUstream from, CUstream to) {
    found.add(name, told([&] { return handover(stamp, from, to); }));
  };
  handed("handover_same_stream", plain, plain);
  handed("handover_two_streams", plain, other);
  handed("handover_two_sets", first, second);
  handed("handover_whole_to_set", plain, first);
  return found;
}

std::string which(CUcontext found, CUcontext primary, const Halves& halves) {
  if (found == nullptr) return "null";
  if (found == primary) return "primary";
  if (found == halves.first.context) return "first set";
  return found == halves.second.context ? "second set" : "another";
}

// Finds out where the blocks of launches run, in relation to two known sets.
class Places {
 public:
  Places(const Kernels& kernels, const Halves& halves) : where_(kernels) {
    first_ = where_.run(halves.first.stream);
    second_ = where_.run(halves.second.stream);
  }
  size_t set_sms() const { return first_.size(); }
  Where& where() { return where_; }
  // Returns the place, or the name of the refusal.
  template <class Launch>
  std::string of(CUstream stream, Launch launch) {
    try {
      where_.forget();
      need(launch(), "launch");
      return place_of(where_.seen(stream));
    } catch (const Refused& refused) {
      return refused.what;
    }
  }
  std::string of_function(CUstream stream, CUfunction function) {
    return of(stream, [&] { return where_.launch(stream, function); });
  }

 private:
  std::string place_of(const std::vector<uint64_t>& seen) const {
    const auto within = [&](const std::vector<uint64_t>& set) {
      return std::includes(set.begin(), set.end(), seen.begin(), seen.end());
    };
    if (seen.empty()) return "nowhere";
    if (within(first_)) return "first set";
    return within(second_) ? "second set" : "elsewhere";
  }

  Where where_;
  std::vector<uint64_t> first_, second_;
};

void ask_context(Json* found, CUstream stream, CUcontext primary, const Halves& halves) {
  CUcontext context = nullptr;
  CUgreenCtx green = nullptr;
  const CUresult asked = DRIVER(cuStreamGetCtx_v2, "cuStreamGetCtx")(stream, &context, &green);
  found->add("stream_context",
             asked == CUDA_SUCCESS ? which(context, primary, halves) : name_of(asked));
  found->add("stream_green", green == halves.first.green ? "its own" : "another");
}

// Launches while the set's own context is current, and a module is loaded in it.
void ask_within_set(Json* found, Places* places, CUfunction primarys, CUfunction kernel,
                    const Halves& halves, CUstream plain, const char* path) {
  const CUcontext primary = current();
  const CUstream in_first = halves.first.stream;
  const CUresult entered = DRIVER(cuCtxSetCurrent, "cuCtxSetCurrent")(halves.first.context);
  found->add("set_becomes_current", name_of(entered));
  CUmodule own = nullptr;
  CUfunction function = nullptr;
  const CUresult loaded = DRIVER(cuModuleLoad, "cuModuleLoad")(&own, path);
  found->add("set_loads_module", name_of(loaded));
  if (loaded == CUDA_SUCCESS)
    found->add("set_gets_function", name_of(DRIVER(cuModuleGetFunction, "cuModuleGetFunction")(
                                        &function, own, "where")));
  found->add("primary_function_while_set_current", places->of_function(in_first, primarys));
  found->add("kernel_while_set_current", places->of_function(in_first, kernel));
  if (function != nullptr) {
    found->add("set_function_in_set", places->of_function(in_first, function));
    found->add("set_function_in_other_set", places->of_function(halves.second.stream, function));
  }
  make_current(primary);
  if (function != nullptr)
    found->add("set_function_in_primary", places->of_function(plain, function));
}

// A cooperative grid that fills the whole device.
CUresult launch_together(CUfunction function, CUstream stream) {
  int blocks = 0;
  need(DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessor,
              "cuOccupancyMaxActiveBlocksPerMultiprocessor")(&blocks, function, 32, 0),
       "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  const unsigned all = std::min((unsigned)blocks * all_sms().sm.smCount, Where::kBlocks);
  static CUdeviceptr seen = 0;
  if (seen == 0)
    need(DRIVER(cuMemAlloc_v2, "cuMemAlloc")(&seen, Where::kBlocks * sizeof(unsigned)),
         "cuMemAlloc");
  unsigned long long stay_ns = 0;
  void* parameters[] = {&seen, &stay_ns};
  const CUresult launched = DRIVER(cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel")(
      function, all, 1, 1, 32, 1, 1, 0, stream, parameters);
  need(DRIVER(cuStreamSynchronize, "cuStreamSynchronize")(stream), "synchronize");
  return launched;
}

Json handles(const Kernels& kernels, CUmodule module, const char* path) {
  const CUcontext primary = current();
  Halves halves;
  Places places(kernels, halves);
  const CUstream plain = plain_stream(), in_first = halves.first.stream;
  const CUfunction kernel = kernels.get("where");
  CUfunction primarys = nullptr;
  check(DRIVER(cuModuleGetFunction, "cuModuleGetFunction")(&primarys, module, "where"), "where");
  Json found = event("result");
  ask_context(&found, in_first, primary, halves);
  found.add("primary_function_in_set", places.of_function(in_first, primarys));
  found.add("primary_function_in_primary", places.of_function(plain, primarys));
  found.add("kernel_in_set", places.of_function(in_first, kernel));
  found.add("kernel_in_primary", places.of_function(plain, kernel));
  ask_within_set(&found, &places, primarys, kernel, halves, plain, path);
  found.add("grid_of_the_device_in_set", name_of(launch_together(primarys, in_first)));
  found.add("grid_of_the_device_in_primary", name_of(launch_together(primarys, plain)));
  CUevent event;
  check(DRIVER(cuEventCreate, "cuEventCreate")(&event, CU_EVENT_DISABLE_TIMING), "event");
  found.add("primary_event_in_set",
            name_of(DRIVER(cuEventRecord, "cuEventRecord")(event, in_first)));
  found.add("primary_waits_for_it",
            name_of(DRIVER(cuStreamWaitEvent, "cuStreamWaitEvent")(plain, event, 0)));
  return found;
}

CUgraph captured(Where* where, CUstream stream) {
  CUgraph graph;
  need(DRIVER(cuStreamBeginCapture_v2, "cuStreamBeginCapture")(stream,
                                                               CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
       "cuStreamBeginCapture");
  const CUresult launched = where->launch(stream);
  need(DRIVER(cuStreamEndCapture, "cuStreamEndCapture")(stream, &graph), "cuStreamEndCapture");
  need(launched, "cuLaunchKernel");
  return graph;
}

// Creates a graph of one node, which is added while `current_then` is current.
CUgraph added(Where* where, CUfunction func, CUkernel kern, CUcontext context,
              CUcontext current_then) {
  const CUcontext before = current();
  CUgraph graph;
  need(DRIVER(cuGraphCreate, "cuGraphCreate")(&graph, 0), "cuGraphCreate");
  make_current(current_then);
  const CUresult result = where->add(graph, func, kern, context);
  make_current(before);
  need(result, "cuGraphAddKernelNode");
  return graph;
}

// Reports what the graph's node says about its context, and where it runs, for each stream that it
// is launched into.
Json about(CUgraph graph, CUcontext primary, const Halves& halves, CUstream plain, Places* places) {
  CUgraphNode node;
  size_t count = 1;
  need(DRIVER(cuGraphGetNodes, "cuGraphGetNodes")(graph, &node, &count), "cuGraphGetNodes");
  CUDA_KERNEL_NODE_PARAMS_v2 parameters = {};
  const CUresult asked =
      DRIVER(cuGraphKernelNodeGetParams_v2, "cuGraphKernelNodeGetParams")(node, &parameters);
  CUgraphExec executable;
  need(DRIVER(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags")(&executable, graph, 0),
       "cuGraphInstantiateWithFlags");
  const auto run = [&](CUstream stream) {
    return places->of(stream,
                      [&] { return DRIVER(cuGraphLaunch, "cuGraphLaunch")(executable, stream); });
  };
  return Json()
      .add("node_context",
           asked == CUDA_SUCCESS ? which(parameters.ctx, primary, halves) : name_of(asked))
      .add("in_first_set", run(halves.first.stream))
      .add("in_second_set", run(halves.second.stream))
      .add("in_primary", run(plain));
}

Json graphs(const Kernels& kernels, CUmodule module) {
  const CUcontext primary = current();
  Halves halves;
  Places places(kernels, halves);
  Where* where = &places.where();
  const CUstream plain = plain_stream();
  const CUcontext set = halves.first.context;
  const CUkernel kern = (CUkernel)kernels.get("where");
  CUfunction func = nullptr;
  check(DRIVER(cuModuleGetFunction, "cuModuleGetFunction")(&func, module, "where"), "where");
  Json found = event("result");
  found.add("set_sms", (uint64_t)places.set_sms());
  const auto tell = [&](const char* name, auto make) {
    found.add(name, told([&] { return about(make(), primary, halves, plain, &places); }));
  };
  tell("captured_in_set", [&] { return captured(where, halves.first.stream); });
  tell("captured_in_primary", [&] { return captured(where, plain); });
  tell("kernel_added_for_set", [&] { return added(where, nullptr, kern, set, primary); });
  tell("kernel_added_while_set_current", [&] { return added(where, nullptr, kern, nullptr, set); });
  tell("function_added_for_set", [&] { return added(where, func, nullptr, set, primary); });
  tell("function_added_while_set_current",
       [&] { return added(where, func, nullptr, nullptr, set); });
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string action = argv[2];
  const CUmodule module = make_module(argv[1]);
  const Kernels kernels(argv[1]);
  event("ready").print();
  while (next_order()) {
    const Json found = told(
        [&] {
          if (action == "costs") return costs(kernels);
          return action == "handles" ? handles(kernels, module, argv[1]) : graphs(kernels, module);
        },
        event("result"));
    found.print();
  }
  return 0;
}
