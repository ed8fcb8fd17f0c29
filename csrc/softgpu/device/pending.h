// Operations as submitted, from SUBMIT to DONE. A client may have tens of thousands of them, so
// they are small, come from a pool and are found by number in a table of pointers. Only the first
// one of each stream also has an Op, which is what the Gpu works on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "faults.h"
#include "protocol.h"

namespace tandem::softgpu {

struct Stream;

// Refers to an operation by number: it may end, or its client go, while the reference lives.
struct OpRef {
  uint32_t connection = 0;
  uint64_t op = 0;
};

struct Dependency {
  OpRef on;
  Dependency* next;
};

struct Pending {
  uint64_t id;
  Stream* stream;
  Pending* next;      // in the same stream
  Stream* waiters;    // streams whose first operation depends on this one; see Stream::next_waiter
  Dependency* after;  // dependencies, unordered; those that have ended are dropped when looked at
  uint64_t amount;    // blocks of a kernel, otherwise bytes
  double flops_per_block, bytes_per_block;
  double asleep_ns;
  uint32_t block_threads;
  uint32_t slowness;                   // a copy lasts this many times as long
  uint32_t name;                       // number in Names
  uint32_t status;                     // CUresult of the body, once done
  uint16_t fitting_blocks, least_sms;  // see KernelShape
  int8_t priority;                     // the launch's own, or the stream's
  uint8_t kind;                        // OpKind
  FaultKind fault;
  bool needs_body;
  bool asked;  // START was sent
  bool body_done;
  bool cost_pending;  // BODY will tell the cost
};

// The total bytes that a kernel moves.
inline uint64_t kernel_bytes(const Pending& submitted) {
  const double bytes = static_cast<double>(submitted.amount) * submitted.bytes_per_block;
  return bytes < 1e18 ? static_cast<uint64_t>(bytes) : uint64_t{1'000'000'000'000'000'000};
}

// A pool for objects that come and go by the thousand; it keeps their memory for reuse.
template <typename Thing>
class Pool {
 public:
  Thing* take() {
    if (spare_.empty()) grow();
    Thing* thing = spare_.back();
    spare_.pop_back();
    return thing;
  }
  void give_back(Thing* thing) { spare_.push_back(thing); }

 private:
  static constexpr size_t kSlab = 256;
  void grow() {
    slabs_.push_back(std::make_unique<Thing[]>(kSlab));
    for (size_t i = kSlab; i > 0; --i) spare_.push_back(&slabs_.back()[i - 1]);
  }
  std::vector<std::unique_ptr<Thing[]>> slabs_;
  std::vector<Thing*> spare_;
};

// Stores each kernel name once, however many kernels share it. A number stays valid while it is
// held.
class Names {
 public:
  uint32_t hold(std::string_view name);
  void let_go(uint32_t number);
  const std::string& text(uint32_t number) const { return *names_[number].text; }

 private:
  struct Name {
    const std::string* text;
    uint32_t holders;
  };
  void forget_unheld();

  std::unordered_map<std::string, uint32_t> numbers_;
  std::vector<Name> names_;
  std::vector<uint32_t> free_;
  size_t unheld_ = 0;
  std::string wanted_;  // reused, so that a look-up allocates nothing
};

// A client's operations by number; open addressing with linear probing.
class OpTable {
 public:
  size_t size() const { return size_; }
  Pending* find(uint64_t id) const;
  void insert(Pending* op);
  void erase(uint64_t id);

 private:
  size_t home(uint64_t id) const { return (id * 0x9e3779b97f4a7c15U) >> shift_; }
  size_t next(size_t slot) const { return (slot + 1) & (slots_.size() - 1); }
  size_t slot_of(uint64_t id) const;
  void grow();

  std::vector<Pending*> slots_;
  size_t size_ = 0;
  unsigned shift_ = 64;
};

}  // namespace tandem::softgpu
