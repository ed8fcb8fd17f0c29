// Addresses in the shared memory of a cluster's blocks: mapa and getctarank.
#include "cluster.h"
#include "lanes.h"
#include "ops.h"

namespace softgpu::ptx {
namespace {

// Maps an address of shared memory to the same place in the shared memory of the block of rank b.
template <class T, bool kGeneric>
void map_address(Warp& warp, const Instr& in, uint32_t mask) {
  const Block& block = *warp.block;
  const T* a = warp.at<T>(in.a);
  const uint32_t* rank = warp.at<uint32_t>(in.b);
  T out[kLanes] = {};
  each_lane(mask, [&](uint32_t lane) {
    const uint64_t at = kGeneric ? a[lane] : shared_to_generic(block, a[lane]);
    const Block* holder = holder_of(block, at, 1);
    if (holder == nullptr || rank[lane] >= block.cluster->blocks.size()) {
      return warp.block->fail(CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    const uint64_t there = reinterpret_cast<uint64_t>(block.cluster->blocks[rank[lane]]->shared) +
                           (at - reinterpret_cast<uint64_t>(holder->shared));
    out[lane] = static_cast<T>(kGeneric ? there : generic_to_shared(block, there));
  });
  write(warp, in.dst, out, mask);
}

template <class T, bool kGeneric>
void rank_of_address(Warp& warp, const Instr& in, uint32_t mask) {
  const Block& block = *warp.block;
  const T* a = warp.at<T>(in.a);
  uint32_t out[kLanes] = {};
  each_lane(mask, [&](uint32_t lane) {
    const uint64_t at = kGeneric ? a[lane] : shared_to_generic(block, a[lane]);
    const Block* holder = holder_of(block, at, 1);
    out[lane] = holder != nullptr ? holder->rank : block.rank;
  });
  write(warp, in.dst, out, mask);
}

// The form of the address: in the shared space with 32 or 64 bits, or generic.
struct Form {
  Type type;
  bool generic;
};
Form take_form(Decode& d) {
  const bool shared = d.take("shared::cluster");
  const Form form{d.type(), !shared};
  if (form.type != Type::kU64 && (form.type != Type::kU32 || form.generic)) {
    d.fail("does not exist for this type");
  }
  return form;
}

}  // namespace

void decode_mapa(Decode& d) {
  const Form form = take_form(d);
  d.out.dst = d.destination(0, form.type);
  d.out.a = d.source(1, form.type);
  d.out.b = d.source(2, Type::kU32);
  d.out.flow = Flow::kMayFail;
  if (form.generic) return d.set(map_address<uint64_t, true>);
  d.set(form.type == Type::kU64 ? map_address<uint64_t, false> : map_address<uint32_t, false>);
}

void decode_getctarank(Decode& d) {
  const Form form = take_form(d);
  d.out.dst = d.destination(0, Type::kU32);
  d.out.a = d.source(1, form.type);
  if (form.generic) return d.set(rank_of_address<uint64_t, true>);
  d.set(form.type == Type::kU64 ? rank_of_address<uint64_t, false>
                                : rank_of_address<uint32_t, false>);
}

}  // namespace softgpu::ptx
