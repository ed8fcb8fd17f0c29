// Adds the operations of a window, as tandem.dag.model has them, to a graph: a million at once.
#include <pybind11/stl.h>

#include <unordered_set>

#include "bindings.h"
#include "dag.h"

namespace tandem::bindings {
namespace {

using dag::Kind;
using py::arg;

// Bits of a virtual address (Intel 64 and IA-32 manual, volume 3, 5-level paging).
constexpr unsigned kAddressBits = 57;

// As many processes as the remaining bits can number.
constexpr uint64_t kProcesses = uint64_t{1} << (64 - kAddressBits);

// Different processes use the same addresses for different memory.
uint64_t address_in(uint64_t address, uint64_t process) {
  return address + (process << kAddressBits);
}

bool has_address(uint64_t address, uint64_t bytes, uint64_t process) {
  const uint64_t end = uint64_t{1} << kAddressBits;
  return address < end && bytes <= end - address && process < kProcesses;
}

// Moves the accesses to the process's addresses. Returns false if one does not fit there.
bool move_to(uint64_t process, Dag::Accesses* accesses) {
  for (auto& [address, bytes, is_const] : *accesses) {
    if (!has_address(address, bytes, process)) return false;
    address = address_in(address, process);
  }
  return true;
}

bool is_of_memory(Kind kind) {
  return kind == Kind::kAlloc || kind == Kind::kFree || kind == Kind::kMemset;
}

// Indices of the fields of tandem.dag.model.Operation.
enum Field : size_t {
  kKind,
  kName,
  kThread,
  kContext,
  kSubmitted,
  kStream,
  kDuration,
  kObject,
  kBytes,
  kBlocks,
  kFlags,
  kAccesses,
  kFields,
};

template <class T>
T field(const py::tuple& operation, Field which) {
  return py::handle(PyTuple_GET_ITEM(operation.ptr(), which)).cast<T>();
}

// Adds operations under the graph's own numbers of streams and threads.
class Adder {
 public:
  Adder(Dag& dag, const std::vector<uint32_t>& streams, const std::vector<uint64_t>& processes)
      : dag_(dag), streams_(streams), processes_(processes), threads_(processes.size()) {}

  void add(const py::tuple& operation) {
    if (operation.size() != kFields)
      throw py::value_error("an operation has another number of fields");
    const auto number = field<size_t>(operation, kThread);
    const uint64_t process = processes_.at(number);
    dag::Operation op;
    op.kind = kind(operation);
    op.flags = field<uint8_t>(operation, kFlags);
    op.thread = thread(number, field<uint32_t>(operation, kContext));
    op.stream = stream(field<py::object>(operation, kStream));
    op.blocks = field<uint32_t>(operation, kBlocks);
    op.object = field<uint64_t>(operation, kObject);
    op.bytes = field<uint64_t>(operation, kBytes);
    op.submitted_ns = field<uint64_t>(operation, kSubmitted);
    op.duration_ns = field<uint64_t>(operation, kDuration);
    auto accesses = field<Dag::Accesses>(operation, kAccesses);
    bool is_known = move_to(process, &accesses);
    if (is_of_memory(op.kind)) {
      is_known &= has_address(op.object, op.bytes, process);
      op.object = address_in(op.object, process);
    }
    if (!is_known) op.flags |= dag::kUnresolved;
    if (!is_known) accesses.clear();
    dag_.add(op, accesses.empty() ? std::nullopt : std::make_optional(std::move(accesses)));
  }

 private:
  struct Thread {
    uint32_t number = dag::kNone;
    uint32_t context = 0;
  };

  // The kinds are integers, since casting to the enumeration takes as long as all other fields.
  static Kind kind(const py::tuple& operation) {
    const auto number = field<uint32_t>(operation, kKind);
    if (number >= dag::kKindCount) throw py::value_error("an operation has an unknown kind");
    return static_cast<Kind>(number);
  }

  uint32_t thread(size_t number, uint32_t context) {
    Thread& thread = threads_[number];
    if (thread.number == dag::kNone) thread.number = dag_.add_thread(context);
    else if (thread.context != context) dag_.use_context(thread.number, context);
    thread.context = context;
    return thread.number;
  }

  uint32_t stream(const py::object& number) const {
    return number.is_none() ? dag::kNone : streams_.at(number.cast<size_t>());
  }

  Dag& dag_;
  const std::vector<uint32_t>& streams_;
  const std::vector<uint64_t>& processes_;
  std::vector<Thread> threads_;
};

void add_all(Dag& dag, const py::sequence& operations, const std::vector<uint32_t>& streams,
             const std::vector<uint64_t>& processes, const std::unordered_set<size_t>& gaps) {
  Adder adder(dag, streams, processes);
  size_t place = 0;
  for (const py::handle& operation : operations) {
    if (gaps.count(place++)) dag.lose();
    adder.add(py::cast<py::tuple>(operation));
  }
}

}  // namespace

void add_dag_build(py::module_& module) {
  module.def("add_all", &add_all, arg("dag"), arg("operations"), py::kw_only(), arg("streams"),
             arg("processes"), arg("gaps"));
  module.attr("MOST_CHAINS") = dag::Order::kMostChains;
  module.attr("MOST_CONTEXTS") = dag::Order::kMostContexts;
}

}  // namespace tandem::bindings
