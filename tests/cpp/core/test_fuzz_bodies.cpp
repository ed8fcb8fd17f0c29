// The fuzzers' bodies on inputs from a fixed seed, so that every run of the tests covers them.
#include <random>
#include <string>
#include <vector>

#include "../../fuzz/bodies.h"
#include "../../fuzz/name_bodies.h"
#include "../../fuzz/sample_bodies.h"
#include "check.h"

namespace {

std::vector<uint8_t> bytes(std::mt19937& random, size_t longest) {
  std::vector<uint8_t> out(random() % (longest + 1));
  for (uint8_t& byte : out) byte = static_cast<uint8_t>(random());
  return out;
}

}  // namespace

TEST(random_packets_are_refused_with_words) {
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const auto packet = bytes(random, 600);
    fuzz::codec(packet.data(), packet.size());
  }
}

TEST(damaged_packets_are_refused_or_within_bounds) {
  std::mt19937 random(2);
  for (int i = 0; i < 50'000; ++i) {
    const auto edits = bytes(random, 24);
    fuzz::codec_from_valid(static_cast<uint16_t>(random() % 9), edits.data(), edits.size());
  }
}

TEST(garbage_in_a_state_page_becomes_clean_figures) {
  std::mt19937 random(3);
  fuzz::State state;
  for (int i = 0; i < 1000; ++i) {
    const auto writes = bytes(random, 1100);
    state.run(writes.data(), writes.size());
  }
}

// Small values in the places that matter reach branches that random words hardly ever reach.
TEST(plausible_lies_in_a_state_page_become_clean_figures) {
  std::mt19937 random(4);
  fuzz::State state;
  for (int i = 0; i < 1000; ++i) {
    std::vector<uint8_t> writes;
    for (int step = 0; step < 60; ++step) {
      const uint64_t words[] = {random() % 48, 2560 + random() % 136, random() % 3500};
      const auto word = static_cast<uint16_t>(words[random() % 3]);
      const uint8_t place[] = {static_cast<uint8_t>(word & 0xff), static_cast<uint8_t>(word >> 8)};
      writes.insert(writes.end(), place, place + 2);
      for (int byte = 0; byte < 8; ++byte) {
        writes.push_back(static_cast<uint8_t>(byte < 2 || byte == 4 ? random() % 4 : 0));
      }
      writes.push_back(static_cast<uint8_t>(random()));
    }
    state.run(writes.data(), writes.size());
  }
}

TEST(garbage_in_a_sample_ring_becomes_samples_within_bounds) {
  std::mt19937 random(5);
  fuzz::SampleRing ring;
  for (int i = 0; i < 1000; ++i) {
    const auto writes = bytes(random, 2200);
    ring.run(writes.data(), writes.size());
  }
}

// Heads with valid kinds, sample and lengths, among words of any kind.
TEST(plausible_lies_in_a_sample_ring_become_samples_within_bounds) {
  std::mt19937 random(6);
  fuzz::SampleRing ring;
  const auto put = [](std::vector<uint8_t>& writes, size_t place, uint64_t value, bool read) {
    for (int i = 0; i < 2; ++i) writes.push_back(static_cast<uint8_t>(place >> 8 * i));
    for (int i = 0; i < 8; ++i) writes.push_back(static_cast<uint8_t>(value >> 8 * i));
    writes.push_back(read ? 0 : 1);
  };
  for (int i = 0; i < 1000; ++i) {
    std::vector<uint8_t> writes;
    for (size_t record = 0; record < 64; ++record) {
      const uint64_t kinds[] = {16, 17, 18, 24, random() % 30};
      put(writes, record * 8 + 1, kinds[random() % 5], false);
      put(writes, record * 8 + 2, 1, false);
      put(writes, record * 8 + 4, random() % 4, false);
      put(writes, record * 8 + 5, random() % 20 | uint64_t{random() % 60} << 32, false);
      put(writes, record * 8 + 7, random() % 100, false);
      if (random() % 8 == 0) put(writes, 64 * 8, record + 1, true);
    }
    put(writes, 64 * 8, 64, true);
    ring.run(writes.data(), writes.size());
  }
}

// Random characters that occur in names, after a valid beginning.
TEST(garbage_behind_a_name_is_understood_or_not) {
  std::mt19937 random(7);
  const std::string letters = "_ZNSTIJLEKPVRFXDv0123456789abcfipst.";
  for (int i = 0; i < 200'000; ++i) {
    std::string name = i % 2 ? "_Z1fIPKfiEvT_S1_" : "_ZN1A1BIfE1gEPKS0_S1_";
    const size_t kept = random() % name.size();
    name.resize(kept);
    for (size_t more = random() % 24; more; --more) name += letters[random() % letters.size()];
    fuzz::mangled_name(reinterpret_cast<const uint8_t*>(name.data()), name.size());
  }
}
