// Copies between device and host, alone and as the shim's mover does. Prints `ready` once its
// memory is allocated, then each line on stdin repeats the action.
//
//   vmm_copies IMAGE copies KIND BYTES     KIND: hostalloc memfd memfd_huge memfd_hugetlb
//   vmm_copies IMAGE register BYTES PIECE  of a memfd, PIECE bytes at once
//   vmm_copies IMAGE hostalloc BYTES
//   vmm_copies IMAGE move BYTES            every other line checks what was moved
#include <functional>

#include "chunks.h"
#include "host_memory.h"
#include "pattern.h"
#include "talk.h"

namespace {

constexpr size_t kPiece = 32 << 20;

CUresult register_host(char* at, size_t bytes) {
  return DRIVER(cuMemHostRegister_v2, "cuMemHostRegister")(at, bytes, CU_MEMHOSTREGISTER_PORTABLE);
}

// Returns pinned memory of a kind. `about` gets its cost, or the reason why there is none: under
// `error`, or under `why_not` if no huge pages are reserved, which is not an error.
char* pinned_memory(const std::string& kind, size_t bytes, Json* about) {
  uint64_t start_ns = now_ns();
  char* at = nullptr;
  if (kind == "hostalloc") {
    const CUresult result = DRIVER(cuMemHostAlloc, "cuMemHostAlloc")((void**)&at, bytes, 0);
    about->add("alloc_ms", us_since(start_ns) / 1e3);
    if (result == CUDA_SUCCESS) return at;
    about->add("error", name_of(result));
    return nullptr;
  }
  std::string error;
  const unsigned flags = kind == "memfd_hugetlb" ? MFD_HUGETLB : 0;  // of the usual size, 2 MiB
  at = sealed_memory(bytes, flags, kind == "memfd_huge", &error);
  about->add("fill_ms", us_since(start_ns) / 1e3);
  if (at == nullptr) {
    about->add(flags != 0 ? "why_not" : "error", error);
    return nullptr;
  }
  const double huge = huge_kib() * 1024;
  if (huge < 0) {
    about->add("huge_share", "the kernel does not say");
  } else {
    about->add("huge_share", huge / (double)bytes);
  }
  start_ns = now_ns();
  const CUresult result = register_host(at, bytes);
  about->add("register_ms", us_since(start_ns) / 1e3);
  if (result == CUDA_SUCCESS) return at;
  about->add("error", "cuMemHostRegister: " + name_of(result));
  return nullptr;
}

// Copies in one direction, in a stream of its own.
class Lane {
 public:
  Lane(bool out, char* host, size_t bytes) : out_(out), host_(host), bytes_(bytes) {
    check(DRIVER(cuMemAlloc_v2, "cuMemAlloc")(&device_, bytes), "cuMemAlloc");
    check(DRIVER(cuStreamCreate, "cuStreamCreate")(&stream_, CU_STREAM_NON_BLOCKING), "stream");
    for (CUevent* event : {&begin_, &end_})
      check(DRIVER(cuEventCreate, "cuEventCreate")(event, CU_EVENT_DEFAULT), "cuEventCreate");
  }
  void start(int rounds) {
    const auto record = DRIVER(cuEventRecord, "cuEventRecord");
    const auto in = DRIVER(cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync");
    const auto out = DRIVER(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync");
    moved_ = 0;
    check(record(begin_, stream_), "record");
    for (int i = 0; i < rounds; i++) {
      for (size_t at = 0; at < bytes_; at += kPiece) {
        const size_t size = std::min(kPiece, bytes_ - at);
        check(out_ ? out(host_ + at, device_ + at, size, stream_)
                   : in(device_ + at, host_ + at, size, stream_),
              "copy");
        moved_ += (double)size;
      }
    }
    check(record(end_, stream_), "record");
  }
  double rate() {
    check(DRIVER(cuStreamSynchronize, "cuStreamSynchronize")(stream_), "synchronize");
    float ms = 0;
    check(DRIVER(cuEventElapsedTime_v2, "cuEventElapsedTime")(&ms, begin_, end_), "elapsed");
    return gb_s(moved_, ms / 1e3);
  }

 private:
  bool out_;
  char* host_;
  size_t bytes_;
  CUdeviceptr device_ = 0;
  CUstream stream_;
  CUevent begin_, end_;
  double moved_ = 0;
};

int copies(const std::string& kind, size_t bytes) {
  Json about = event("ready");
  char* const host = pinned_memory(kind, bytes, &about);
  about.print();
  if (host == nullptr) return 0;
  Lane out(true, host, bytes / 2), in(false, host + bytes / 2, bytes / 2);
  constexpr int kRounds = 4;
  while (next_order()) {
    out.start(1);
    out.rate();
    Json found = event("result");
    out.start(kRounds);
    found.add("out_gb_s", out.rate());
    in.start(kRounds);
    found.add("in_gb_s", in.rate());
    out.start(kRounds);
    in.start(kRounds);
    const double out_rate = out.rate(), in_rate = in.rate();
    found.add("out_both_gb_s", out_rate).add("in_both_gb_s", in_rate).print();
  }
  return 0;
}

// Calls `act(offset, bytes)` for each piece until one fails; returns the last result.
CUresult each_piece(size_t bytes, size_t piece,
                    const std::function<CUresult(size_t, size_t)>& act) {
  CUresult result = CUDA_SUCCESS;
  for (size_t at = 0; at < bytes && result == CUDA_SUCCESS; at += piece)
    result = act(at, std::min(piece, bytes - at));
  return result;
}

int registrations(size_t bytes, size_t piece) {
  constexpr size_t kAcross = 8192;
  std::string error;
  char* const at = sealed_memory(bytes, 0, false, &error);
  CUdeviceptr device = 0;
  check(DRIVER(cuMemAlloc_v2, "cuMemAlloc")(&device, kAcross), "cuMemAlloc");
  Json about = event("ready");
  if (at == nullptr) about.add("error", error);
  about.add("bytes", (uint64_t)bytes).print();
  while (at != nullptr && next_order()) {
    Json found = event("result");
    uint64_t start_ns = now_ns();
    found.add("register", name_of(each_piece(bytes, piece, [&](size_t from, size_t size) {
                return register_host(at + from, size);
              })));
    found.add("register_ms", us_since(start_ns) / 1e3);
    if (piece < bytes) {
      char* const across = at + piece - kAcross / 2;
      found.add("copy_across",
                name_of(DRIVER(cuMemcpyHtoD_v2, "cuMemcpyHtoD")(device, across, kAcross)));
    }
    start_ns = now_ns();
    found.add("unregister", name_of(each_piece(bytes, piece, [&](size_t from, size_t) {
                return DRIVER(cuMemHostUnregister, "cuMemHostUnregister")(at + from);
              })));
    found.add("unregister_ms", us_since(start_ns) / 1e3).print();
  }
  return 0;
}

int host_allocations(size_t bytes) {
  event("ready").add("bytes", (uint64_t)bytes).print();
  while (next_order()) {
    Json found = event("result");
    void* at = nullptr;
    uint64_t start_ns = now_ns();
    const CUresult result = DRIVER(cuMemHostAlloc, "cuMemHostAlloc")(&at, bytes, 0);
    found.add("alloc", name_of(result)).add("alloc_ms", us_since(start_ns) / 1e3);
    start_ns = now_ns();
    if (result == CUDA_SUCCESS) check(DRIVER(cuMemFreeHost, "cuMemFreeHost")(at), "cuMemFreeHost");
    found.add("free_ms", us_since(start_ns) / 1e3).print();
  }
  return 0;
}

// Works like shim/swap/transit.cpp: at most four copies are in flight, and the only thread maps or
// unmaps a chunk while the other copies continue.
class Mover {
 public:
  Mover(Chunks* chunks, char* host) : chunks_(chunks), host_(host) {
    check(DRIVER(cuStreamCreate, "cuStreamCreate")(&stream_, CU_STREAM_NON_BLOCKING), "stream");
    for (CUevent& event : events_)
      check(DRIVER(cuEventCreate, "cuEventCreate")(&event, CU_EVENT_DISABLE_TIMING), "event");
  }
  // Returns the seconds for all chunks. `calls_us` gets the time of each map, or unmap.
  double move(bool out, std::vector<double>* calls_us) {
    const uint64_t start_ns = now_ns();
    const size_t count = chunks_->count(), size = chunks_->chunk_bytes();
    const auto finish = [&](size_t number) {
      check(synchronize_(events_[number % kDepth]), "cuEventSynchronize");
      if (out) timed(calls_us, [&] { chunks_->unmap(number); });
    };
    for (size_t i = 0; i < count; i++) {
      if (i >= kDepth) finish(i - kDepth);
      if (!out) timed(calls_us, [&] { chunks_->map(i); });
      char* const host = host_ + i * size;
      check(out ? out_(host, chunks_->at(i), size, stream_)
                : in_(chunks_->at(i), host, size, stream_),
            "copy");
      check(record_(events_[i % kDepth], stream_), "cuEventRecord");
    }
    for (size_t i = count < kDepth ? 0 : count - kDepth; i < count; i++) finish(i);
    return us_since(start_ns) / 1e6;
  }

 private:
  static constexpr size_t kDepth = 4;
  template <class Call>
  static void timed(std::vector<double>* calls_us, Call call) {
    const uint64_t start_ns = now_ns();
    call();
    calls_us->push_back(us_since(start_ns));
  }

  decltype(&cuMemcpyHtoDAsync_v2) in_ = DRIVER(cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync");
  decltype(&cuMemcpyDtoHAsync_v2) out_ = DRIVER(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync");
  decltype(&cuEventRecord) record_ = DRIVER(cuEventRecord, "cuEventRecord");
  decltype(&cuEventSynchronize) synchronize_ = DRIVER(cuEventSynchronize, "cuEventSynchronize");
  Chunks* chunks_;
  char* host_;
  CUstream stream_;
  CUevent events_[kDepth];
};

int moves(CUmodule module, size_t wanted) {
  const size_t bytes = std::max<size_t>(wanted / kPiece, 1) * kPiece;
  Json about = event("ready");
  char* const host = pinned_memory("memfd", bytes, &about);
  about.add("bytes", (uint64_t)bytes);
  if (host == nullptr) {
    about.print();
    return 0;
  }
  Chunks chunks(bytes, kPiece, true);
  const uint64_t start_ns = now_ns();
  chunks.map_all();
  about.add("map_all_ms", us_since(start_ns) / 1e3);
  Pattern pattern(module);
  pattern.write(chunks.at(0), bytes);
  Mover mover(&chunks, host);
  about.print();
  while (next_order()) {
    std::vector<double> unmap_us, map_us;
    const double out_s = mover.move(true, &unmap_us), in_s = mover.move(false, &map_us);
    event("moved")
        .add("out_gb_s", gb_s((double)bytes, out_s))
        .add("in_gb_s", gb_s((double)bytes, in_s))
        .add("unmap_us", median(unmap_us))
        .add("unmap_max_us", quantile(unmap_us, 1))
        .add("map_us", median(map_us))
        .add("map_max_us", quantile(map_us, 1))
        .print();
    if (!next_order()) break;
    event("checked").add("wrong_words", pattern.wrong_words(chunks.at(0), bytes)).print();
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const CUmodule module = make_module(argv[1]);
  const std::string action = argv[2];
  const size_t last = strtoull(argv[argc - 1], nullptr, 10);
  if (action == "copies" && argc == 5) return copies(argv[3], last);
  if (action == "register" && argc == 5) return registrations(strtoull(argv[3], nullptr, 10), last);
  if (action == "hostalloc") return host_allocations(last);
  if (action == "move") return moves(module, last);
  return 2;
}
