#include "reach.h"

#include <sys/mman.h>

#include <map>

#include "graph_memory.h"
#include "memory.h"
#include "pool.h"

namespace softgpu {
namespace {

constexpr int kAll = PROT_READ | PROT_WRITE;
using Access = std::map<int, CUmemAccess_flags>;

struct Piece {  // a piece of device memory, whole pages
  uintptr_t begin;
  size_t bytes;
  int device;
  int protection;             // while nothing is hidden
  const Context* context;     // for cuMemAlloc: the context that owns it
  const Access* access;       // for everything else: rights of devices, see `owner_has_all`
  bool owner_has_all = true;  // its own device needs no entry there
};

template <class Visit>
void for_mappings(const Range& range, Visit visit) {
  for (const auto& [begin, mapping] : range.mappings) {
    visit(Piece{begin, mapping.bytes, mapping.physical->prop.location.id, protection_of(mapping),
                nullptr, &mapping.access, false});
  }
}

template <class Visit>
void for_pieces(const Runtime& rt, Visit visit) {
  for (const auto& [begin, range] : rt.ranges) {
    const uintptr_t first = begin / kPage * kPage;
    const size_t bytes = round_up(begin + range.bytes, kPage) - first;
    if (range.kind == RangeKind::kReserved) {
      for_mappings(range, visit);
    } else if (range.kind == RangeKind::kDevice && range.pool && range.pool->imported) {
      visit(Piece{first, bytes, range.device, kAll, nullptr, &range.pool->access});
    } else if (range.kind == RangeKind::kDevice && !range.pool && !range.managed) {
      visit(Piece{first, bytes, range.device, kAll, range.context, nullptr});
    }
  }
  for (const Pool* pool : rt.pools) {
    for (const auto& [offset, segment] : pool->arena.segments()) {
      if (segment.allocation == 0) continue;  // no pages yet
      visit(Piece{pool->base + offset, segment.bytes, pool->device, kAll, nullptr, &pool->access});
    }
  }
  for (const auto& [begin, memory] : rt.graph_allocations) {
    visit(Piece{begin, round_up(memory->bytes, kPage), memory->device, kAll, nullptr,
                &memory->access});
  }
}

int allowed(const Piece& piece, const Context& viewer) {
  if (piece.device == viewer.device && piece.owner_has_all) return kAll;
  if (!piece.access) {
    const bool enabled = viewer.peers.count(piece.context->number) > 0;
    return enabled || piece.context == &viewer ? kAll : PROT_NONE;
  }
  const auto found = piece.access->find(viewer.device);
  if (found == piece.access->end()) return PROT_NONE;
  switch (found->second) {
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE: return kAll;
    case CU_MEM_ACCESS_FLAGS_PROT_READ: return PROT_READ;
    default: return PROT_NONE;
  }
}

void protect(const Piece& piece, int protection) {
  mprotect(reinterpret_cast<void*>(piece.begin), piece.bytes, protection);
}

}  // namespace

void hide_from(Runtime& rt, const Context& viewer) {
  if (rt.device.device_count < 2) return;
  for_pieces(rt, [&](const Piece& piece) {
    const int protection = piece.protection & allowed(piece, viewer);
    if (protection == piece.protection) return;
    protect(piece, protection);
    rt.hidden = true;
  });
}

// Goes by what exists now: memory may have come and gone since it was hidden.
void reveal_all(Runtime& rt) {
  if (!rt.hidden) return;
  for_pieces(rt, [](const Piece& piece) { protect(piece, piece.protection); });
  rt.hidden = false;
}

void reveal(Runtime& rt, uintptr_t at) {
  if (!rt.hidden) return;
  for_pieces(rt, [&](const Piece& piece) {
    if (at - piece.begin < piece.bytes) protect(piece, piece.protection);
  });
}

}  // namespace softgpu
