// GPU instances: which of them fit on a device, and that they share neither time nor memory.
#include "check.h"
#include "simulation.h"

using namespace tandem::softgpu;

namespace {

constexpr uint64_t kMs = 1'000'000;

std::string layout_error(const char* text, const char* profile = "h200", uint32_t devices = 1) {
  MigLayout layout;
  return read_mig_layout(text, *find_profile(profile), devices, &layout);
}
bool mentions(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

Settings cut(const char* layout) {
  Settings settings = tiny_settings();
  settings.profile = find_profile("h200");
  CHECK(read_mig_layout(layout, *settings.profile, 1, &settings.mig).empty());
  return settings;
}

// Joins a client on that GPU, with context 1 and stream 1.
uint32_t join_on(Simulation* s, int32_t pid, uint32_t gpu) {
  const uint32_t connection = s->greet(pid, 0);
  s->send(connection, Type::kContextCreate, ContextCreate{{}, 1, gpu, 100});
  s->stream(connection, 1);
  return connection;
}

uint32_t reserve(Simulation* s, uint32_t connection, uint32_t gpu, uint64_t bytes) {
  s->send(connection, Type::kMemReserve,
          MemReserve{{}, 1, bytes, gpu, static_cast<uint32_t>(MemKind::kLinear)});
  return s->peers[connection].memory.back().status;
}

// Makes a kernel that fills the 16 SMs of the smallest instance for `ns`.
Work on_small(double ns, const char* name) {
  const Profile& h200 = *find_profile("h200");
  return kernel(ns * h200.flops_per_s / h200.sm_count / 1e9, name, 1, 16);
}

}  // namespace

TEST(documented_combinations_fit) {
  for (const char* fits :
       {"7g.141gb", "4g.71gb,3g.71gb", "3g.71gb,3g.71gb", "4g.71gb,2g.35gb,1g.18gb",
        "2g.35gb,2g.35gb,2g.35gb,1g.18gb", "1g.18gb,3g.71gb,1g.18gb,1g.18gb,1g.18gb",
        "1g.18gb,1g.18gb,1g.18gb,1g.18gb,1g.18gb,1g.18gb,1g.18gb+me",
        "1g.35gb,1g.35gb,1g.35gb,1g.35gb", "1g.18gb,4g.71gb"}) {
    CHECK(layout_error(fits).empty());
  }
  CHECK(layout_error("7g.80gb;;1g.10gb,4g.40gb", "a100", 3).empty());
}

TEST(other_layouts_are_refused_with_what_is_allowed) {
  CHECK(mentions(layout_error("4g.71gb,4g.71gb"), "at most 1 fit"));
  CHECK(mentions(layout_error("1g.18gb+me,1g.18gb+me"), "too many 1g.18gb+me"));
  CHECK(mentions(layout_error("7g.141gb,1g.18gb"), "does not fit on a device"));
  CHECK(mentions(layout_error("3g.71gb,3g.71gb,1g.18gb"), "3g.71gb takes 4"));
  CHECK(mentions(layout_error("1g.10gb"), "must be one of 1g.18gb, 1g.18gb+me, 1g.35gb"));
  CHECK(mentions(layout_error("1g.18gb,"), "'' is not a MIG profile of h200"));
  CHECK(mentions(layout_error("3g.71g"), "3g.71gb"));
  CHECK(mentions(layout_error("1g.10gb", "tiny"), "which has no MIG"));
  CHECK(mentions(layout_error("1g.10gb", "rtx4090"), "are h200 and a100"));
  CHECK(mentions(layout_error("1g.18gb;1g.18gb"), "for 2 devices, but there are 1"));
}

TEST(a_layout_is_checked_against_the_profile_whatever_comes_first) {
  const char* arguments[] = {"tandem-softgpu", "--dir",     "/d",  "--mig",
                             "1g.10gb",        "--profile", "a100"};
  Settings settings;
  CHECK(read_settings(7, const_cast<char**>(arguments), &settings).empty());
  CHECK_EQ(settings.mig.size(), 1u);
  arguments[6] = "h200";
  CHECK(mentions(read_settings(7, const_cast<char**>(arguments), &settings), "--mig: '1g.10gb'"));
}

TEST(a_gpu_has_the_share_of_its_profile) {
  const Profile& h200 = *find_profile("h200");
  MigLayout layout;
  CHECK(read_mig_layout("1g.18gb,3g.71gb;;7g.141gb", h200, 4, &layout).empty());
  const std::vector<DeviceInfo> gpus = gpus_of(h200, 4, layout);
  CHECK_EQ(gpus.size(), 5u);
  CHECK_EQ(gpus[1].sm_count, 60u);
  CHECK_EQ(gpus[1].memory_bytes, h200.memory_bytes / 2);
  CHECK(gpus[1].bytes_per_s == h200.bytes_per_s / 2);
  CHECK_EQ(gpus[1].mig_start, 4u);  // beside the first one
  CHECK_EQ(gpus[2].index, 1u);
  CHECK_EQ(gpus[2].gpu_instance, 0u);
  CHECK_EQ(gpus[3].sm_count, h200.sm_count);
  CHECK_EQ(gpus[4].gpu, 4u);
  CHECK(std::memcmp(gpus[0].uuid, gpus[1].uuid, 16) != 0);
  CHECK(std::memcmp(gpus[0].device_uuid, gpus[1].device_uuid, 16) == 0);
}

MigReply cut_anew(Simulation* s, uint32_t asker, MigVerb verb, uint32_t value,
                  uint32_t start = kNone32) {
  s->send(asker, Type::kMigChange, MigChange{{}, 1, 0, static_cast<uint32_t>(verb), value, start});
  return s->peers[asker].cuts.back();
}

MigStatus status_of(const MigReply& reply) { return static_cast<MigStatus>(reply.status); }

TEST(a_device_is_cut_anew_and_new_clients_are_on_what_there_is_then) {
  Simulation s(cut("1g.18gb"));
  const uint32_t asker = s.greet(9, kQueryOnly);
  CHECK(status_of(cut_anew(&s, asker, MigVerb::kDestroy, 1)) == MigStatus::kInUse);
  CHECK(status_of(cut_anew(&s, asker, MigVerb::kDestroyCompute, 1)) == MigStatus::kDone);
  CHECK(status_of(cut_anew(&s, asker, MigVerb::kDestroyCompute, 1)) == MigStatus::kNotFound);
  CHECK(status_of(cut_anew(&s, asker, MigVerb::kDestroy, 1)) == MigStatus::kDone);
  CHECK(status_of(cut_anew(&s, asker, MigVerb::kDestroy, 1)) == MigStatus::kNotFound);
  CHECK(status_of(cut_anew(&s, asker, MigVerb::kCreate, 77)) == MigStatus::kNotFound);
  const MigReply made = cut_anew(&s, asker, MigVerb::kCreate, 9, 4);  // 3g.71gb
  CHECK(status_of(made) == MigStatus::kDone);
  CHECK_EQ(made.gpu_instance, 1u);
  CHECK(status_of(cut_anew(&s, asker, MigVerb::kCreate, 9, 4)) == MigStatus::kNoRoom);
  CHECK(status_of(cut_anew(&s, asker, MigVerb::kSetMode, 0)) == MigStatus::kInUse);
  CHECK(status_of(cut_anew(&s, asker, MigVerb::kCreateCompute, 1)) == MigStatus::kDone);
  CHECK(status_of(cut_anew(&s, asker, MigVerb::kCreateCompute, 1)) == MigStatus::kNoRoom);

  const uint32_t worker = join_on(&s, 1, 0);
  CHECK_EQ(reserve(&s, worker, 0, uint64_t{20} << 30), uint32_t{kSuccess});
  CHECK(status_of(cut_anew(&s, asker, MigVerb::kDestroyCompute, 1)) == MigStatus::kInUse);
}

TEST(a_device_without_mig_is_not_cut) {
  Simulation s(tiny_settings());
  const uint32_t asker = s.greet(9, kQueryOnly);
  CHECK(status_of(cut_anew(&s, asker, MigVerb::kSetMode, 1)) == MigStatus::kNoMig);
}

TEST(nobody_but_root_cuts_a_device) {
  Simulation s(cut("1g.18gb"));
  const uint32_t other = s.greet(8, kQueryOnly, 1000), root = s.greet(9, kQueryOnly);
  CHECK(status_of(cut_anew(&s, other, MigVerb::kDestroyCompute, 1)) == MigStatus::kNotPermitted);
  CHECK(status_of(cut_anew(&s, root, MigVerb::kDestroyCompute, 1)) == MigStatus::kDone);
}

TEST(instances_run_side_by_side_and_contexts_on_one_take_turns) {
  Simulation s(cut("1g.18gb,1g.18gb"));
  const uint32_t a = join_on(&s, 1, 0), b = join_on(&s, 2, 1), c = join_on(&s, 3, 1);
  const uint64_t ka = s.submit(a, on_small(kMs, "a"));
  const uint64_t kb = s.submit(b, on_small(kMs, "b")), kc = s.submit(c, on_small(kMs, "c"));
  s.run();
  CHECK_EQ(s.done(a, ka).start_ns, 0u);
  CHECK_EQ(s.done(a, ka).end_ns, kMs);
  CHECK_EQ(s.done(b, kb).start_ns, 0u);
  CHECK_EQ(s.done(b, kb).end_ns, kMs);
  CHECK(s.done(c, kc).start_ns > kMs);
  CHECK_EQ(s.lines_of("switch").size(), 1u);
  for (const Line& line : s.lines_of("kernel")) CHECK_EQ(line.gpu, line.name == "a" ? 0u : 1u);
}

TEST(copies_on_instances_do_not_wait_for_each_other) {
  Simulation s(cut("1g.18gb,1g.18gb"));
  const uint32_t a = join_on(&s, 1, 0), b = join_on(&s, 2, 1);
  const uint64_t ca = s.submit(a, of_kind(OpKind::kCopyHtoD, 1 << 20));
  const uint64_t cb = s.submit(b, of_kind(OpKind::kCopyHtoD, 1 << 20));
  s.run();
  CHECK_EQ(s.done(a, ca).start_ns, 0u);
  CHECK_EQ(s.done(b, cb).start_ns, 0u);
  CHECK_EQ(s.done(a, ca).end_ns, s.done(b, cb).end_ns);
}

TEST(memory_of_an_instance_is_its_own) {
  Simulation s(cut("1g.18gb,1g.18gb"));
  const uint32_t a = join_on(&s, 1, 0), b = join_on(&s, 2, 1);
  const uint64_t all = find_profile("h200")->memory_bytes / 8;
  CHECK_EQ(reserve(&s, a, 0, all), uint32_t{kSuccess});
  CHECK_EQ(reserve(&s, a, 0, 1), uint32_t{kOutOfMemory});
  CHECK_EQ(reserve(&s, b, 1, all), uint32_t{kSuccess});
}

TEST(a_failure_stays_on_its_instance_and_a_loss_takes_the_device) {
  for (const bool lost : {false, true}) {
    Settings settings = cut("1g.18gb,1g.18gb");
    settings.arbitration.mode = Mode::kMps;  // where contexts on one GPU fail together
    CHECK(settings.faults.parse(lost ? "lost:bad@1" : "launch:bad@1").empty());
    Simulation s(settings);
    const uint32_t a = join_on(&s, 1, 0), b = join_on(&s, 2, 1);
    s.submit(a, on_small(kMs, "bad"));
    const uint64_t good = s.submit(b, on_small(2.0 * kMs, "good"));
    s.run();
    CHECK_EQ(s.peers[a].faults.size(), 1u);
    CHECK_EQ(s.peers[b].faults.size(), lost ? 1u : 0u);
    CHECK_EQ(s.done(b, good).status == kSuccess, !lost);
  }
}
