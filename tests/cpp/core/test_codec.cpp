#include "daemon/codec.h"

#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "daemon/utf8.h"
#include "shm_layout.h"

using namespace tandem;
using daemon::Message;
using daemon::Problem;

namespace {

template <typename T>
T message(wire::Type type) {
  T out{};
  out.header = {wire::kMagic, wire::kProtocolVersion, static_cast<uint16_t>(type), sizeof(T), 0};
  return out;
}

wire::Hello hello() {
  auto out = message<wire::Hello>(wire::Type::kHello);
  out.layout_min = out.layout_max = 1;
  std::strcpy(out.request.name, "train-7");
  return out;
}

template <typename T>
std::string refusal(const T& sent, size_t bytes = sizeof(T)) {
  Message decoded;
  return daemon::decode(&sent, bytes, &decoded).text;
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST(a_hello_arrives_as_it_was_sent) {
  wire::Hello sent = hello();
  sent.job_id = 42;
  sent.device_count = 2;
  sent.device_uuid[1][15] = 9;
  sent.request.memory_bytes = shm::kNoLimit;
  Message decoded;

  CHECK(!daemon::decode(&sent, sizeof(sent), &decoded));

  CHECK(decoded.type == wire::Type::kHello);
  CHECK_EQ(std::memcmp(&decoded.hello, &sent, sizeof(sent)), 0);
}

TEST(a_hello_of_an_older_shim_promises_nothing) {
  wire::Hello sent = hello();
  sent.promise = {1, 2};
  const size_t bytes = offsetof(wire::Hello, promise);
  sent.header.size = static_cast<uint32_t>(bytes);
  Message decoded;
  decoded.hello.promise = {3, 4};

  CHECK(!daemon::decode(&sent, bytes, &decoded));

  CHECK_EQ(decoded.hello.promise.persistent_bytes, 0u);
  CHECK_EQ(decoded.hello.promise.ephemeral_bytes, 0u);
}

TEST(a_hello_that_ends_with_its_promise_asks_nothing_of_the_sms) {
  wire::Hello sent = hello();
  sent.promise = {1, 2};
  sent.space = {3, 4};
  const size_t bytes = offsetof(wire::Hello, space);
  sent.header.size = static_cast<uint32_t>(bytes);
  Message decoded;

  CHECK(!daemon::decode(&sent, bytes, &decoded));

  CHECK_EQ(decoded.hello.promise.ephemeral_bytes, 2u);
  CHECK_EQ(decoded.hello.space.sm_count, 0u);
  CHECK_EQ(decoded.hello.space.isolation, 0u);
}

TEST(a_longer_message_of_a_newer_shim_is_read_as_far_as_known) {
  struct Newer {
    wire::Hello hello;
    uint64_t more[4];
  } sent{hello(), {1, 2, 3, 4}};
  sent.hello.header.size = sizeof(sent);

  CHECK(refusal(sent).empty());
}

TEST(each_fault_of_a_header_is_named_with_its_value) {
  wire::Hello sent = hello();
  CHECK(contains(refusal(sent, 7), "packet of 7 bytes is shorter than a header of 16"));
  sent.header.magic = 0x12345678;
  CHECK(contains(refusal(sent), "magic is 0x12345678"));
  sent = hello();
  sent.header.version = 9;
  CHECK(contains(refusal(sent), "protocol version 9, this daemon speaks 1"));
  sent = hello();
  sent.header.size = 10;
  CHECK(contains(refusal(sent), "says it has 10 bytes, the packet has 504"));
  sent = hello();
  sent.header.type = 77;
  CHECK(contains(refusal(sent), "unknown message type 77"));
  sent.header.type = static_cast<uint16_t>(wire::Type::kWelcome);
  CHECK(contains(refusal(sent), "2 (WELCOME) is sent by the daemon"));
}

TEST(a_message_shorter_than_its_first_version_is_refused) {
  wire::Hello sent = hello();
  sent.header.size = 100;
  CHECK(contains(refusal(sent, 100), "HELLO has 100 bytes, fewer than 472"));
}

TEST(an_oversized_packet_is_refused) {
  std::vector<char> packet(5000);
  Message decoded;
  CHECK(contains(daemon::decode(packet.data(), packet.size(), &decoded).text, "longer than 4096"));
}

TEST(absurd_figures_are_refused) {
  const struct {
    size_t offset;
    uint32_t value;
    const char* words;
  } cases[] = {
      {offsetof(wire::Hello, device_count), 17, "device_count is 17, more than 16"},
      {offsetof(wire::Hello, clock), 2, "clock is 2, more than 1"},
      {offsetof(wire::Hello, layout_min), 5, "layout_min is 5, more than 1"},
      {offsetof(wire::Hello, request.job_class), 4, "job_class is 4, more than 3"},
      {offsetof(wire::Hello, request.sm_percent), 101, "sm_percent is 101, more than 100"},
      {offsetof(wire::Hello, request.preemptible), 3, "preemptible is 3, more than 2"},
      {offsetof(wire::Hello, request.swappable), 4, "swappable is 4, more than 3"},
      {offsetof(wire::Hello, mps_sms), 100'001, "mps_sms is 100001, more than 100000"},
      {offsetof(wire::Hello, space.isolation), 5, "isolation is 5, more than 4"},
  };
  for (const auto& c : cases) {
    wire::Hello sent = hello();
    std::memcpy(reinterpret_cast<char*>(&sent) + c.offset, &c.value, sizeof(c.value));
    CHECK(contains(refusal(sent), c.words));
  }
}

TEST(names_must_end_and_be_text) {
  wire::Hello sent = hello();
  std::memset(sent.request.group, 'x', sizeof(sent.request.group));
  CHECK(contains(refusal(sent), "group is not terminated within 64 bytes"));
  sent = hello();
  sent.request.name[3] = '\xff';
  CHECK(contains(refusal(sent), "name is not UTF-8 at byte 3 (0xff)"));
  sent = hello();
  sent.request.name[5] = '\x1b';
  CHECK(contains(refusal(sent), "name has control character 0x1b at byte 5"));
}

TEST(text_beyond_a_terminator_is_not_kept) {
  wire::Hello sent = hello();
  std::memcpy(sent.request.name, "ab\0secret", 9);
  Message decoded;

  CHECK(!daemon::decode(&sent, sizeof(sent), &decoded));

  CHECK_EQ(decoded.hello.request.name[3], '\0');
}

TEST(a_character_cut_off_by_truncation_is_left_out) {
  wire::Hello sent = hello();
  std::memset(sent.request.name, 'x', 62);
  sent.request.name[62] = '\xc3';  // first half of a two-byte character
  sent.request.name[63] = '\0';
  Message decoded;

  CHECK(!daemon::decode(&sent, sizeof(sent), &decoded));

  CHECK_EQ(std::strlen(decoded.hello.request.name), 62u);
}

TEST(utf8_is_told_from_its_imitations) {
  for (const char* good : {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xed\x9f\xbf"}) {
    CHECK_EQ(daemon::valid_utf8_bytes(good, std::strlen(good)), std::strlen(good));
  }
  for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80",
                          "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
                          "\xc3"
                          "a"}) {
    CHECK_EQ(daemon::valid_utf8_bytes(bad, std::strlen(bad)), 0u);
  }
}

TEST(a_command_line_may_have_several_lines) {
  auto sent = message<wire::Register>(wire::Type::kRegister);
  std::strcpy(sent.command, "python -c 'import os\nprint(1)'");
  CHECK(refusal(sent).empty());
}

TEST(answers_carry_what_they_were_given) {
  wire::Welcome welcome;
  CHECK(!daemon::encode_welcome(7, 3, 1, 1, false, &welcome));
  CHECK_EQ(welcome.header.size, sizeof(welcome));
  CHECK_EQ(welcome.process_id, 7u);
  CHECK_EQ(welcome.state_bytes, shm::kStateBytes);
  wire::Presence presence;
  CHECK(!daemon::encode_presence(63, 1, true, &presence));
  CHECK_EQ(presence.header.type, static_cast<uint16_t>(wire::Type::kPresenceGone));
  wire::Registered registered;
  CHECK(!daemon::encode_registered(5, 2, "A=1", "it has no effect", &registered));
  CHECK_EQ(registered.job_id, 5u);
  CHECK_EQ(registered.job_class, 2u);
  CHECK(std::string(registered.environment) == "A=1");
  CHECK(std::string(registered.told) == "it has no effect");
  const std::string long_text(wire::kEnvironmentBytes, 'x');
  CHECK(contains(daemon::encode_registered(5, 2, long_text, "", &registered).text,
                 "environment has 512 bytes, more than 511"));
  wire::HostPool pool;
  wire::HostFile file;
  CHECK(!daemon::encode_host_file(3, 2, 1, &file));
  CHECK_EQ(file.header.size, sizeof(file));
  CHECK(file.header.type == static_cast<uint16_t>(wire::Type::kHostFile));
  CHECK(file.order == 3 && file.since == 2 && file.pool == 1);
  wire::HostBack back;
  CHECK(!daemon::encode_host_back(4, 3, 2, &back));
  CHECK_EQ(back.header.size, sizeof(back));
  CHECK(back.header.type == static_cast<uint16_t>(wire::Type::kHostBack));
  CHECK(back.order == 4 && back.since == 3 && back.pool == 2);
  CHECK(!daemon::encode_host_pool(2 * shm::kSwapUnit, &pool));
  CHECK_EQ(pool.bytes, 2 * shm::kSwapUnit);
}

TEST(only_who_may_be_swapped_is_told_so) {
  wire::Welcome welcome;
  CHECK(!daemon::encode_welcome(7, 3, 1, 1, false, &welcome));
  CHECK(!(welcome.features & wire::kFeatureSwap));
  CHECK(!daemon::encode_welcome(7, 3, 1, 1, true, &welcome));
  CHECK(welcome.features & wire::kFeatureSwap);
}

TEST(answers_out_of_range_are_refused) {
  wire::Welcome welcome;
  wire::Presence presence;
  wire::Refused refused;
  CHECK(daemon::encode_welcome(1, 1, 2, 1, false, &welcome));
  CHECK(daemon::encode_welcome(1, 1, 0, 99, false, &welcome));
  CHECK(daemon::encode_presence(64, 0, false, &presence));
  CHECK(daemon::encode_refused(0, "", &refused));
  CHECK(daemon::encode_refused(9, "", &refused));
  wire::HostPool pool;
  wire::HostFile file;
  CHECK(daemon::encode_host_file(0, 1, 1, &file));
  CHECK(daemon::encode_host_file(1, 1, 0, &file));
  wire::HostBack back;
  CHECK(daemon::encode_host_back(0, 1, 1, &back));
  CHECK(daemon::encode_host_back(1, 1, 0, &back));
  CHECK(daemon::encode_host_pool(0, &pool));
  CHECK(daemon::encode_host_pool(shm::kSwapUnit + 4096, &pool));
}

TEST(a_long_reason_is_cut_at_a_character) {
  std::string reason(wire::kReasonBytes - 2, 'x');
  reason += "\xc3\xa9 and more";
  wire::Refused refused;

  CHECK(!daemon::encode_refused(1, reason, &refused));

  CHECK_EQ(std::strlen(refused.reason), wire::kReasonBytes - 2u);
}
