// What the words of a program mean: handles and addresses by name, buffers, arguments of calls.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace proof {

constexpr int kNotReady = 600, kThreads = 4, kBuffers = 16, kPeer = 9;
constexpr size_t kSlotBytes = 64;
constexpr size_t kBufferBytes = 8192;
constexpr uint64_t kUntouched = 0xa5a5a5a5a5a5a5a5;

using Word = uint64_t;
using Call = int (*)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);

inline void* g_driver;
inline void* g_image;
inline void (*g_wait_begin)();  // virtual time passes while a thread waits for another
inline void (*g_wait_end)();
inline int g_peer = -1;  // to the second process, once there is one
inline pid_t g_peer_pid = -1;
inline unsigned char* g_slots;  // shared with it
inline int g_slots_fd = -1;
inline int g_control = -1;         // to the daemon, if there is one
inline bool g_says_steps = false;  // the daemon wants to hear of each call before it is made
inline std::atomic<bool> g_held{false};
inline bool g_daemon_needs_time = false;  // virtual time
inline pthread_mutex_t g_control_lock = PTHREAD_MUTEX_INITIALIZER;
inline bool g_is_ordered = true;               // the last `order` succeeded
inline thread_local bool t_is_ordered = true;  // the same for a thread beside others
inline unsigned char* g_buffers;
inline pthread_mutex_t g_handles_lock = PTHREAD_MUTEX_INITIALIZER;  // for both maps
inline std::map<std::string, Word> g_handles;
inline std::map<Word, std::string> g_names;  // the newest name of each handle
inline pthread_mutex_t g_notes_lock = PTHREAD_MUTEX_INITIALIZER;
inline std::vector<Word> g_notes;

class Locked {
 public:
  explicit Locked(pthread_mutex_t* lock) : lock_(lock) { pthread_mutex_lock(lock_); }
  ~Locked() { pthread_mutex_unlock(lock_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  pthread_mutex_t* lock_;
};

inline void note(void* what) {
  const Locked locked(&g_notes_lock);
  g_notes.push_back(reinterpret_cast<Word>(what));
}

[[noreturn]] inline void fail(const std::string& why) {
  std::fprintf(stderr, "interpreter: %s\n", why.c_str());
  _exit(3);
}

// Parses the arguments one by one, and owns the memory they point to until the call is over.
class Arguments {
 public:
  explicit Arguments(const std::string& text) : at_(text.c_str()) {}

  std::vector<Word> all() {
    std::vector<Word> values;
    for (; *at_; ++at_) {
      if (*at_ != ' ') values.push_back(one());
      if (!*at_) break;
    }
    return values;
  }
  [[nodiscard]] bool is_left_out() const { return left_out_; }

  // What the call wrote, in order.
  std::string shown(bool succeeded) {
    std::string text;
    for (const Out& out : outs_) text += " " + out_text(out, succeeded);
    return text;
  }

 private:
  struct Out {
    Word* cell;
    Word before;
    size_t width;      // 0: a handle
    std::string name;  // of the handle
    bool is_shown;
  };

  Word one() {
    switch (*at_) {
      case '&': return ++at_, handle_out();
      case '#': return ++at_, number_out(true);
      case '~': return ++at_, number_out(false);
      case '{': return ++at_, structure();
      case '[': return ++at_, list(']');
      case '<': return ++at_, parameters();
      case '"': return ++at_, reinterpret_cast<Word>(keep(word()));
      case '@': return ++at_, special(word());
      case '$': return ++at_, reinterpret_cast<Word>(g_slots + number() * kSlotBytes);
      default: break;
    }
    if (*at_ == '-' || (*at_ >= '0' && *at_ <= '9')) return number();
    return handle();
  }

  std::string word() {
    const char* start = at_;
    while (*at_ && !std::strchr(" ,;]}>+!=/", *at_)) ++at_;
    return {start, at_};
  }
  Word number() {
    char* end = nullptr;
    const Word value =
        *at_ == '-' ? static_cast<Word>(std::strtoll(at_, &end, 0)) : std::strtoull(at_, &end, 0);
    at_ = end;
    return value;
  }
  Word handle() {
    const std::string name = word();
    const Locked locked(&g_handles_lock);
    Word value = 0;
    if (name[0] == 'H') {
      const auto index = static_cast<size_t>(std::atoi(name.c_str() + 1));
      value = reinterpret_cast<Word>(g_buffers + index % kBuffers * kBufferBytes);
    } else if (const auto found = g_handles.find(name); found != g_handles.end()) {
      value = found->second;
    }
    if (*at_ == '!') {
      ++at_;
      left_out_ |= !value;
    }
    if (*at_ == '+') {
      ++at_;
      value += number();
    }
    return value;
  }
  Word special(const std::string& name) {
    if (name == "note") return reinterpret_cast<Word>(&note);
    if (name == "image") return reinterpret_cast<Word>(g_image);
    fail("no such thing: @" + name);
  }
  Word handle_out() {
    Word* cell = cells(1);
    *cell = kUntouched;
    outs_.push_back({cell, kUntouched, 0, word(), true});
    return reinterpret_cast<Word>(cell);
  }
  Word number_out(bool is_shown) {
    const size_t width = number();
    Word* cell = cells(width / 8 + 1);
    for (size_t i = 0; i < width / 8 + 1; ++i) cell[i] = kUntouched;
    if (*at_ == '=') {
      ++at_;
      const Word first = one();
      std::memcpy(cell, &first, width < 8 ? width : 8);
    }
    outs_.push_back({cell, *cell, width, "", is_shown});
    return reinterpret_cast<Word>(cell);
  }
  Word structure() {
    const size_t bytes = number();
    auto* memory = reinterpret_cast<unsigned char*>(cells(bytes / 8 + 1));
    while (*at_ == ';') {
      ++at_;
      const size_t offset = number();
      ++at_;  // '/'
      const size_t width = number();
      ++at_;  // '='
      const Word value = one();
      std::memcpy(memory + offset, &value, width);
    }
    ++at_;  // '}'
    return reinterpret_cast<Word>(memory);
  }
  Word list(char end) {
    std::vector<Word> values;
    while (*at_ && *at_ != end) {
      values.push_back(one());
      if (*at_ == ',') ++at_;
    }
    ++at_;
    Word* memory = cells(values.size() + 1);
    std::copy(values.begin(), values.end(), memory);
    last_count_ = values.size();
    return reinterpret_cast<Word>(memory);
  }
  Word parameters() {
    auto* values = reinterpret_cast<Word*>(list('>'));
    Word* pointers = cells(last_count_ + 1);
    for (size_t i = 0; i < last_count_; ++i) pointers[i] = reinterpret_cast<Word>(values + i);
    return reinterpret_cast<Word>(pointers);
  }

  Word* cells(size_t count) {
    memory_.push_back(std::make_unique<Word[]>(count));
    return memory_.back().get();
  }
  const char* keep(const std::string& text) {
    Word* memory = cells(text.size() / 8 + 1);
    std::memcpy(memory, text.c_str(), text.size() + 1);
    return reinterpret_cast<const char*>(memory);
  }

  static std::string out_text(const Out& out, bool succeeded) {
    if (out.width == 0) return handle_text(out, succeeded);
    if (*out.cell == out.before) return out.is_shown ? "same" : "-";
    if (!out.is_shown) return "-";
    Word value = 0;
    std::memcpy(&value, out.cell, out.width < 8 ? out.width : 8);
    return std::to_string(value);
  }
  // Shows a handle by the name it was first given, or by the new one.
  static std::string handle_text(const Out& out, bool succeeded) {
    const Locked locked(&g_handles_lock);
    const Word value = *out.cell;
    if (value == kUntouched) return "same";
    if (value == 0) return "null";
    const auto known = g_names.find(value);
    const bool is_new = known == g_names.end() || out.name[0] != known->second[0];
    if (!succeeded) return "junk";
    g_handles[out.name] = value;
    if (is_new) return g_names[value] = out.name, "new";
    return "=" + known->second;
  }

  const char* at_;
  std::vector<std::unique_ptr<Word[]>> memory_;
  std::vector<Out> outs_;
  size_t last_count_ = 0;
  bool left_out_ = false;
};

}  // namespace proof
