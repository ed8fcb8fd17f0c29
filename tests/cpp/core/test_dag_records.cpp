#include "dag/records.h"

#include "check.h"

using namespace tandem::dag;
namespace shm = tandem::shm;
using shm::RecordKind;

namespace {

constexpr uint64_t kLegacy = 1, kPerThread = 2, kOne = 0x1000, kOther = 0x2000;

shm::Record record(RecordKind kind, uint64_t stream, uint64_t object = 0, uint32_t context = 1,
                   uint32_t thread = 5) {
  shm::Record made{};
  made.kind = static_cast<uint8_t>(kind);
  made.flags = stream > kPerThread ? shm::kRecordNonBlocking : 0;
  made.stream = stream;
  made.object = object;
  made.thread = thread;
  made.value = uint64_t{context} << 32;
  return made;
}

shm::Record sync(shm::SyncOf what, uint64_t stream, uint64_t object = 0, uint32_t context = 1) {
  shm::Record made = record(RecordKind::kSync, stream, object, context);
  made.value |= static_cast<uint64_t>(what);
  return made;
}

struct Process {
  Graph graph;
  Order order{graph};
  Records records{order};
  NodeId take(const shm::Record& made) { return records.take(made); }
  NodeId launch(uint64_t stream, uint32_t context = 1, uint32_t thread = 5) {
    return take(record(RecordKind::kLaunch, stream, 0x77, context, thread));
  }
  Kind kind(NodeId id) const { return graph.node(id).op.kind; }
};

}  // namespace

TEST(an_event_orders_two_streams) {
  Process process;
  const NodeId first = process.launch(kOne);
  process.take(record(RecordKind::kEventRecord, kOne, 0xe));
  const NodeId aside = process.launch(kOther);
  process.take(record(RecordKind::kEventWait, kOther, 0xe));
  const NodeId second = process.launch(kOther);
  CHECK(process.graph.before(first, second));
  CHECK(!process.graph.before(first, aside));
}

TEST(legacy_streams_of_two_contexts_are_two) {
  Process process;
  const NodeId first = process.launch(kLegacy, 1);
  const NodeId other = process.launch(kLegacy, 2);
  const NodeId third = process.launch(kLegacy, 1);
  CHECK(!process.graph.before(first, other));
  CHECK(process.graph.before(first, third));
}

TEST(an_event_of_a_context_orders_none_of_its_streams_with_another) {
  Process process;
  const auto in_blocking = [&](uint64_t stream) {
    shm::Record made = record(RecordKind::kMemset, stream, 0x5000);
    made.flags = 0;
    return process.take(made);
  };
  const auto of_context = [&](RecordKind kind) {
    shm::Record made = record(kind, kLegacy, 0xe);
    made.flags = shm::kRecordScattered;
    return process.take(made);
  };
  const NodeId first = in_blocking(kOne);
  const NodeId event = of_context(RecordKind::kEventRecord),
               wait = of_context(RecordKind::kEventWait);
  const NodeId second = in_blocking(kOther);
  CHECK(!process.graph.before(first, second));
  CHECK(process.graph.lost_between(first, second));
  CHECK(process.graph.node(event).op.flags == kUnknownOrder);
  CHECK(process.graph.before(event, wait));
}

TEST(every_thread_has_its_own_default_stream) {
  Process process;
  const NodeId first = process.launch(kPerThread, 1, 5);
  const NodeId other = process.launch(kPerThread, 1, 6);
  CHECK(!process.graph.before(first, other));
  CHECK(process.graph.before(other, process.launch(kLegacy)));  // they wait for the legacy one
}

TEST(waits_of_the_host_are_for_what_they_name) {
  Process process;
  const NodeId first = process.launch(kOne), other = process.launch(kOther);
  process.take(record(RecordKind::kEventRecord, kOther, 0xe));
  const NodeId stream = process.take(sync(shm::SyncOf::kStream, kOne));
  CHECK(process.kind(stream) == Kind::kSyncStream);
  CHECK(process.graph.before(first, stream));
  CHECK(!process.graph.before(other, stream));
  const NodeId event = process.take(sync(shm::SyncOf::kEvent, 0, 0xe));
  CHECK(process.kind(event) == Kind::kSyncEvent);
  CHECK(process.graph.before(other, event));
  const NodeId late = process.launch(kOther);
  const NodeId context = process.take(sync(shm::SyncOf::kContext, 0));
  CHECK(process.kind(context) == Kind::kSyncContext);
  CHECK(process.graph.before(late, context));
}

TEST(a_wait_of_which_nothing_is_known_is_no_node) {
  Process process;
  CHECK_EQ(process.take(sync(shm::SyncOf::kUnknown, 0)), kNoNode);
  CHECK_EQ(process.take(record(RecordKind::kMark, 0)), kNoNode);
  CHECK_EQ(process.take(record(RecordKind::kSegment, kOne)), kNoNode);
  CHECK_EQ(process.take(record(static_cast<RecordKind>(200), kOne)), kNoNode);
}

TEST(a_wait_is_for_what_was_there_when_it_began) {
  std::vector<shm::Record> records{record(RecordKind::kLaunch, kOne, 1, 1, 6),
                                   sync(shm::SyncOf::kStream, kOne)};
  records[0].ticks = 50;  // by another thread, while the first one waits
  records[1].ticks = 100;
  records[1].duration_ns = 80;
  in_order(&records);
  Process process;
  const NodeId wait = process.take(records[0]), launch = process.take(records[1]);
  CHECK(process.kind(wait) == Kind::kSyncStream);
  CHECK_EQ(process.graph.node(wait).op.submitted_ns, 20u);
  CHECK(!process.graph.before(launch, wait));
}

TEST(a_time_on_other_sms_is_none) {
  Process process;
  shm::Record launch = record(RecordKind::kLaunch, kOne);
  launch.duration_ns = 80;
  const NodeId known = process.take(launch);
  launch.flags |= shm::kRecordStale;
  const NodeId stale = process.take(launch);
  CHECK_EQ(process.graph.node(known).op.duration_ns, 80u);
  CHECK_EQ(process.graph.node(stale).op.duration_ns, 0u);
}

TEST(what_a_record_does_not_say_is_unresolved) {
  Process process;
  const auto flags = [&](NodeId id) { return process.graph.node(id).op.flags; };
  CHECK(flags(process.launch(kOne)) & kUnresolved);
  shm::Record copy = record(RecordKind::kCopy, kOne, 0x5000);
  CHECK(flags(process.take(copy)) & kUnresolved);
  copy.grid_blocks = 0x4000;  // its source
  CHECK(!(flags(process.take(copy)) & kUnresolved));
  copy.flags |= shm::kRecordScattered;
  CHECK(flags(process.take(copy)) & kUnresolved);
}
