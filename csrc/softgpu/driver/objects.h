// The objects behind the driver's opaque handles. Every field is protected by Runtime::mutex unless
// its comment says otherwise.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kernel_traits.h"
#include "payload.h"
#include "protocol.h"
#include "tandem_kernel_abi.h"

namespace softgpu {

namespace ptx {
struct Function;
}

using tandem::softgpu::OpKind;

struct Array;
struct Capture;
struct Context;
struct GraphNode;
struct GreenContext;
struct Module;

struct GraphEdge {  // seen from one end: the node at the other
  GraphNode* node;
  CUgraphEdgeData data;
};

struct Stream {
  Context* context;
  uint64_t number;       // the device process knows the stream by this
  uint64_t last_op = 0;  // newest operation submitted; 0 = none yet
  unsigned flags = 0;
  int priority = 0;
  bool legacy = false;
  GreenContext* green = nullptr;  // the green context whose SMs it uses; null: the device's
  bool detached = false;          // its green context is gone
  bool destroyed = false;         // by the program; the object is deleted with its last operation
  uint32_t pending_ops = 0;       // submitted, not done
  // By event waits: for each other stream, the newest of its operations that ours come after.
  std::map<uint64_t, uint64_t> comes_after{};
  CUresult failure = CUDA_SUCCESS;  // of a body: the operations after it are not executed
  Capture* capture = nullptr;
  std::vector<GraphEdge> capture_tail;  // what its next node depends on
  std::vector<CUgraphNode> tail_nodes;  // the same, as reported to the program
  std::vector<CUgraphEdgeData> tail_data;
  std::map<int, CUstreamAttrValue> attributes{};  // set by the program
  bool blocking() const { return !(flags & CU_STREAM_NON_BLOCKING); }
};

struct Event {
  Context* context;
  unsigned flags = 0;
  uint64_t op = 0;                  // newest record; 0 = never recorded
  uint64_t end_ns = 0;              // of the newest record, once it is done
  uint64_t capture_id = 0;          // in which the newest record was captured; 0: none
  std::vector<GraphEdge> captured;  // the nodes it comes after
  bool destroyed = false;
  uint32_t pending_ops = 0;
  uint64_t shared = 0;  // the device process knows it by this once it can be shared
  uint64_t cookie = 0;
  bool opened = false;                         // created by another process
  uint64_t stream = 0;                         // number of the stream it was recorded in
  std::map<uint64_t, uint64_t> comes_after{};  // that stream's at that time, and the record itself
};

struct Function {
  Module* module;
  std::string name;
  const tandem::KernelEntry* entry;
  uint32_t params_bytes = 0;
  KernelTraits traits{};
  const ptx::Function* ptx = nullptr;             // interpreted, see ptx_kernels.h
  std::map<int, int> attributes{};                // set by the program
  const struct Kernel* kernel = nullptr;          // the library kernel whose function this is
  bool loaded = false;                            // as cuFuncIsLoaded reports it
  std::shared_ptr<struct LegacyLaunch> legacy{};  // see launch_legacy.cpp
};

// A library's kernel, on all devices. Its function in a context is created on first use.
struct Kernel {
  struct Library* library;
  const Function* function;                        // in the library's own module
  std::map<int, std::map<int, int>> attributes{};  // by device; set by the program
};

// CUlibrary: an image loaded in the process, with a module in each context that uses it.
struct Library {
  std::string image;
  std::map<std::string, Kernel*> kernels{};
  Module* own = nullptr;  // in no context: loaded to learn what the image contains
  std::map<Context*, Module*> modules{};
};

struct HostLibrary {  // a kernel library in this process
  void* handle;       // from dlopen; null if loading failed
  int memory_fd;      // the file it was loaded from
};

// A loaded image.
struct Module {
  Context* context;            // null for a library's own module
  Library* library = nullptr;  // the library whose module this is
  std::vector<HostLibrary> libraries{};
  std::vector<struct PtxImage*> ptx{};
  std::map<std::string, Function*> functions{};
  std::vector<uintptr_t> globals{};  // starts of the ranges registered for its variables
};

enum class RangeKind { kDevice, kHost, kRegistered, kGlobal, kReserved, kGraph };

struct Mapping {  // one cuMemMap inside a reserved range
  size_t bytes;
  struct Physical* physical;
  std::map<int, CUmemAccess_flags> access{};  // by device, if it has any
};

struct Physical {  // cuMemCreate
  int fd;
  size_t bytes;
  uint64_t allocation;  // the device process knows it by this
  CUmemAllocationProp prop;
  uint64_t handle = 0;      // CUmemGenericAllocationHandle; always the same one
  uint32_t handles = 1;     // held by the program: created or imported, and retained
  uint32_t references = 1;  // the handles plus one per mapping
  bool unmappable = false;  // an injected fault of the device
};

struct Pool;
struct Managed;

struct Range {
  uintptr_t begin;
  size_t bytes;
  RangeKind kind;
  Context* context;
  int device;
  uint64_t allocation = 0;
  unsigned flags = 0;
  uint64_t id = 0;                          // CU_POINTER_ATTRIBUTE_BUFFER_ID
  std::map<uintptr_t, Mapping> mappings{};  // kReserved only
  Pool* pool = nullptr;                     // whose memory it is; `allocation` is then 0
  int fd = -1;                              // the file behind it, once others may map it
  uint32_t opens = 0;                       // another process's memory: how often opened here
  uint64_t file = 0;                        // inode of that memory
  bool sync_memops = false;                 // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
  std::shared_ptr<Managed> managed{};       // attributes of managed memory; else null
};

// cuMemFreeAsync of memory outside pools: it is freed when these operations are done.
struct LateFree {
  Range range;
  std::vector<uint64_t> after;
};

struct Backing {        // memory that graphs allocate
  uint64_t allocation;  // the ledger's number
  uint64_t bytes;
};
struct GraphMemory {  // per device
  uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
  std::vector<Backing> spare{};
};

// The end of a destroyed stream's work.
struct LeftWork {
  uint64_t last_op;
  const GreenContext* green;  // as in Stream
  bool blocking;
};

struct Context {
  int device;
  uint64_t number;
  unsigned flags = 0;
  bool primary = false;
  bool alive = true;
  CUresult error = CUDA_SUCCESS;  // sticks until the context is destroyed
  uint32_t pending_ops = 0;
  Stream* legacy = nullptr;
  std::vector<Stream*> streams;  // all live ones, including the default streams
  std::vector<LeftWork> left;    // of streams destroyed before their work had ended
  std::map<int, size_t> limits;
  std::unordered_set<uint64_t> peers;  // numbers of the contexts whose memory it may use
  uint32_t sm_percent = 100;
  uint32_t usage = 1;  // count of cuCtxAttach
  unsigned api_version = 3020;
  CUfunc_cache cache_config = CU_FUNC_CACHE_PREFER_NONE;
  uint64_t allocation = 0;        // for the context itself
  GreenContext* green = nullptr;  // set if this is only the view of that one, see green_context.h
  uint64_t awaited_op = 0;        // from cuCtxWaitEvent: new streams begin after it
};

// What an operation does: a value, the same whether it is submitted to a stream, recorded by a
// capture or held by a graph's node.
struct Work {
  OpKind kind = OpKind::kEvent;
  // What the client executes when the device sends START; null if there is nothing to execute. It
  // returns NOT_READY for a wait that has to be tried again.
  CUresult (*body)(const Work&) = nullptr;
  Event* event = nullptr;  // to be recorded
  void* destination = nullptr;
  const void* source = nullptr;
  size_t bytes = 0, height = 1, destination_pitch = 0, source_pitch = 0;  // height 1: plain
  size_t depth = 1, destination_slice = 0, source_slice = 0;  // bytes from slice to slice of a box
  // The arrays that the addresses are in, if not linear memory. Valid as long as only the program
  // can have destroyed them, so look them up first.
  const Array* destination_array = nullptr;
  const Array* source_array = nullptr;
  uint64_t value = 0;
  unsigned width_or_flags = 0;
  Function* function = nullptr;
  uint32_t grid[3] = {}, block[3] = {}, shared_bytes = 0;
  uint32_t blocks_per_sm = 0;  // as many as fit
  uint32_t least_sms = 0;      // that must be free together: cooperative grids, clusters
  bool cooperative = false;
  uint32_t cluster[3] = {};   // 0: none
  bool own_priority = false;  // use `priority` instead of the stream's
  int priority = 0;
  CUhostFn host_function = nullptr;
  CUstreamCallback callback = nullptr;
  void* user = nullptr;
  CUstream handle = nullptr;    // as the program passed it, for its callback
  std::shared_ptr<void> owner;  // kept alive as long as the work
  size_t total_bytes() const { return bytes * height * depth; }
  Payload payload;  // a kernel's parameters, or bytes read early from the program
};

// One submitted operation. The runtime's table owns it until DONE; while it executes, only the
// executor reads the work.
struct Op {
  uint64_t id;
  Stream* stream;
  bool unsatisfied;  // a wait whose condition did not hold when last tried
  Work work;
  uint64_t start_ns = 0;                             // device time of START
  uint64_t sms[tandem::softgpu::kMaxSms / 64] = {};  // as given in START
};

}  // namespace softgpu
