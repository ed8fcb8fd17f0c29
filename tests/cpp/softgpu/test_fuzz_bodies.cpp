// The device fuzzer's body on inputs from a fixed seed, so that every run of the tests covers it.
#include <random>
#include <vector>

#include "../../fuzz/device_bodies.h"
#include "check.h"

TEST(no_story_of_strangers_harms_the_device_or_who_keeps_to_the_protocol) {
  std::mt19937 random(1);
  for (int i = 0; i < 1500; ++i) {
    std::vector<uint8_t> story(random() % 3000);
    for (uint8_t& byte : story) byte = static_cast<uint8_t>(random());
    fuzz::device(story.data(), story.size());
  }
}
