// Executes a program of driver calls and says what each came to.
//
//   interpreter PROGRAM IMAGE
//   interpreter peer FD     the second process: a step at a time comes from there, and its line goes back
//
// A program is a line per step: `THREAD VERB WORDS`. Steps run one at a time, each on its thread; but
// those of `|VERB`, as far as they follow one another, side by side, in order on each thread only.
//
//   call SYMBOL ARGUMENT..   one call; `ask` the same, `poll` until it is not CUDA_ERROR_NOT_READY
//   order SYMBOL ARGUMENT..  the same; what relies on its success is written `?VERB` and left out without
//   name NEW OLD             the handle or address OLD is called NEW from now on, too
//   look BUFFER              a digest of what a host buffer holds
//   hold                     asks the daemon to close the gate until somebody waits at it
//   tally                    asks the daemon to note what the job counts now
//   leave                    the thread ends
//
// Every argument of a driver call is a whole number or a pointer, so one kind of call does for all:
//
//   12 -1 0x7        a number                    s3 d1+64   a handle or address made before, else 0
//   s3!              the same; the step is left out when there is none
//   &s3              where the call puts a handle: kept as s3 if it succeeds
//   #4 #8=5          where it puts a number of 4 or 8 bytes, shown; ~8 the same, not shown
//   H2+16            host buffer 2, pageable     "text      a string
//   {24;0/8=d1;8/4=7}    a struct of 24 bytes: offset/width=argument
//   [s1,s2]          an array of 8-byte values   <d1,7>     kernel parameters
//   @note @image     our host function, the file IMAGE in memory
//   $0               64 bytes that both processes share; in a call that opens a handle, their value
//
// Thread 9 is the main thread of the second process, which has handles of its own.
//
// Out: `INDEX CODE SHOWN..` a step; then the host functions in the order they ran.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kNotReady = 600, kThreads = 4, kBuffers = 16, kPeer = 9;
constexpr size_t kSlotBytes = 64;
constexpr size_t kBufferBytes = 8192;
constexpr uint64_t kUntouched = 0xa5a5a5a5a5a5a5a5;

using Word = uint64_t;
using Call = int (*)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);

void* g_driver;
void* g_image;
void (*g_wait_begin)();  // the virtual clock waits for no thread that waits for another
void (*g_wait_end)();
int g_peer = -1;     // to the second process, once there is one
pid_t g_peer_pid = -1;
unsigned char* g_slots;  // shared with it
int g_slots_fd = -1;
int g_control = -1;  // to the daemon, where there is one
std::atomic<bool> g_held{false};
bool g_daemon_needs_time = false;  // of the virtual clock
pthread_mutex_t g_control_lock = PTHREAD_MUTEX_INITIALIZER;
bool g_is_ordered = true;                // the last `order` succeeded
thread_local bool t_is_ordered = true;   // the same of this thread, where threads run side by side
unsigned char* g_buffers;
pthread_mutex_t g_handles_lock = PTHREAD_MUTEX_INITIALIZER;  // of both maps
std::map<std::string, Word> g_handles;
std::map<Word, std::string> g_names;  // the newest name of each handle
pthread_mutex_t g_notes_lock = PTHREAD_MUTEX_INITIALIZER;
std::vector<Word> g_notes;

class Locked {
 public:
  explicit Locked(pthread_mutex_t* lock) : lock_(lock) { pthread_mutex_lock(lock_); }
  ~Locked() { pthread_mutex_unlock(lock_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  pthread_mutex_t* lock_;
};

void note(void* what) {
  const Locked locked(&g_notes_lock);
  g_notes.push_back(reinterpret_cast<Word>(what));
}

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "interpreter: %s\n", why.c_str());
  _exit(3);
}

// One argument after the other, as text, and the memory they point to until the call is over.
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
    const Word value = *at_ == '-' ? static_cast<Word>(std::strtoll(at_, &end, 0))
                                   : std::strtoull(at_, &end, 0);
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
  // A handle by the name it was first given, or by the new one.
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

struct Step {
  int index;
  int thread;
  std::string verb, symbol, arguments;
  bool relies_on_order, is_aside;
};

bool& is_ordered(const Step& step) { return step.is_aside ? t_is_ordered : g_is_ordered; }

std::string digest(int index) {
  uint64_t hash = 0xcbf29ce484222325;
  const unsigned char* bytes = g_buffers + static_cast<size_t>(index) % kBuffers * kBufferBytes;
  for (size_t i = 0; i < kBufferBytes; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

// One line to the daemon, one character back. Meanwhile the virtual clock stands, so that nothing
// happens that the program did not ask for, unless the daemon itself needs it.
char tell(const std::string& line) {
  if (g_control < 0) return 'o';
  if (g_daemon_needs_time) g_wait_begin();
  char answer = 'o';
  {
    const Locked locked(&g_control_lock);
    if (write(g_control, line.data(), line.size()) < 0 || read(g_control, &answer, 1) != 1)
      fail("the daemon went away");
  }
  if (g_daemon_needs_time) g_wait_end();
  return answer;
}

// A handle or address that is no more may come again for something else.
void forget_ended(const std::string& symbol, Word handle) {
  const Locked locked(&g_handles_lock);
  const auto has = [&](const char* part) { return symbol.find(part) != std::string::npos; };
  if (has("Destroy") || has("Free") || has("Release")) g_names.erase(handle);
  if (!has("CtxDestroy") && !has("CtxRelease") && !has("GraphDestroy")) return;
  const auto is_in_it = [&](char kind) { return has("Graph") ? kind == 'n' : kind != 'c'; };
  for (auto name = g_names.begin(); name != g_names.end();)
    name = is_in_it(name->second[0]) ? g_names.erase(name) : std::next(name);
}

// A handle for another process is passed by value.
struct ByValue {
  unsigned char bytes[kSlotBytes];
};
int open_handle(const Step& step, void* function, const std::vector<Word>& a) {
  ByValue handle;
  std::memcpy(&handle, reinterpret_cast<const void*>(a[1]), sizeof handle);
  if (step.symbol == "cuIpcOpenEventHandle")
    return reinterpret_cast<int (*)(Word, ByValue)>(function)(a[0], handle);
  return reinterpret_cast<int (*)(Word, ByValue, unsigned)>(function)(a[0], handle,
                                                                      static_cast<unsigned>(a[2]));
}

int invoke(const Step& step, void* function, const std::vector<Word>& a) {
  if (step.symbol.rfind("cuIpcOpen", 0) == 0) return open_handle(step, function, a);
  return reinterpret_cast<Call>(function)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8],
                                          a[9], a[10], a[11]);
}

std::string call(const Step& step) {
  void* function = dlsym(g_driver, step.symbol.c_str());
  if (!function) return " absent";
  Arguments arguments(step.arguments);
  std::vector<Word> a = arguments.all();
  if (step.verb == "order") is_ordered(step) = false;
  if (arguments.is_left_out()) return " left-out";
  a.resize(12);
  int code = kNotReady;
  do {
    code = invoke(step, function, a);
  } while (code == kNotReady && step.verb == "poll");
  if (code == 0) forget_ended(step.symbol, a[0]);
  if (step.verb == "order") is_ordered(step) = code == 0;
  return " " + std::to_string(code) + arguments.shown(code == 0);
}

void say(const std::string& line) {
  if (write(1, line.data(), line.size()) < 0) _exit(4);
}

std::string name_anew(const std::string& name, const std::string& old) {
  const Locked locked(&g_handles_lock);
  const auto found = g_handles.find(old);
  if (found == g_handles.end()) return " left-out";
  g_handles[name] = found->second;
  return " 0";
}

bool is_call(const std::string& verb) {
  return verb == "call" || verb == "order" || verb == "ask" || verb == "poll";
}

ssize_t receive(int descriptor, char* line, size_t size, bool takes_part) {
  if (takes_part && g_wait_begin) g_wait_begin();
  const ssize_t got = recv(descriptor, line, size, 0);
  if (takes_part && g_wait_end) g_wait_end();
  return got;
}

void start_peer() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends)) fail("no socket");
  g_peer_pid = fork();
  if (g_peer_pid < 0) fail("no second process");
  if (g_peer_pid == 0) {
    const std::string descriptor = std::to_string(ends[1]), slots = std::to_string(g_slots_fd);
    setenv("PROOF_SLOTS_FD", slots.c_str(), 1);
    unsetenv("PROOF_CONTROL_FD");
    close(ends[0]);
    execl("/proc/self/exe", "interpreter", "peer", descriptor.c_str(), nullptr);
    _exit(5);
  }
  close(ends[1]);
  g_peer = ends[0];
}

void end_peer() {
  if (g_peer < 0) return;
  close(g_peer);
  if (g_wait_begin) g_wait_begin();
  int status = 0;
  waitpid(g_peer_pid, &status, 0);
  if (g_wait_end) g_wait_end();
  if (status) fail("the second process ended with " + std::to_string(status));
}

// One line to the second process and its answer; the clock does not wait for us meanwhile.
std::string ask_peer(const Step& step) {
  if (g_peer < 0) start_peer();
  const std::string line = step.verb + " " + step.symbol + step.arguments;
  char answer[1000];
  const bool sent = send(g_peer, line.data(), line.size(), MSG_NOSIGNAL) >= 0;
  const ssize_t size = sent ? receive(g_peer, answer, sizeof answer, true) : -1;
  if (size <= 0) fail("the second process went away");
  const std::string text(answer, static_cast<size_t>(size));
  if (step.verb == "order") is_ordered(step) = text.rfind(" 0", 0) == 0;
  return text;
}

// What it shows.
std::string come_to(const Step& step) {
  if (step.relies_on_order && !is_ordered(step)) return " left-out";
  if (step.thread == kPeer) return ask_peer(step);
  if (is_call(step.verb)) return call(step);
  if (step.verb == "name") return name_anew(step.symbol, step.arguments.substr(1));
  if (step.verb == "look") return " " + digest(std::atoi(step.symbol.c_str()));
  if (step.verb == "hold") {
    g_held = g_control >= 0;
    tell("hold\n");
  } else if (step.verb == "tally") {
    tell("tally " + std::to_string(step.index) + "\n");
  }
  return "";
}

void perform(const Step& step) {
  const std::string line = std::to_string(step.index) + come_to(step) + "\n";
  const bool asks = g_held && is_call(step.verb);
  if (asks && tell("done " + std::to_string(step.index) + "\n") == 'o') g_held = false;
  say(line);
}

// What each thread does; the main thread is 0.
using Steps = std::vector<const Step*>;
using Phase = std::array<Steps, kThreads>;

// A thread that performs its part of a phase when it is its turn.
struct Worker {
  pthread_t thread{};
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
  const Steps* part = nullptr;
  bool is_alive = false;
  bool has_called = false;  // takes part in the clock
};
Worker g_workers[kThreads];

void wait_for(Worker& worker, bool has_part, bool takes_part) {
  if (takes_part && g_wait_begin) g_wait_begin();
  pthread_mutex_lock(&worker.lock);
  while ((worker.part != nullptr) != has_part) pthread_cond_wait(&worker.changed, &worker.lock);
  pthread_mutex_unlock(&worker.lock);
  if (takes_part && g_wait_end) g_wait_end();
}

void pass(Worker& worker, const Steps* part) {
  pthread_mutex_lock(&worker.lock);
  worker.part = part;
  pthread_cond_broadcast(&worker.changed);
  pthread_mutex_unlock(&worker.lock);
}

bool is_last(const Steps& part) { return part.back()->verb == "leave"; }

void* work(void* argument) {
  Worker& worker = *static_cast<Worker*>(argument);
  for (;;) {
    wait_for(worker, true, worker.has_called);
    const bool leaves = is_last(*worker.part);
    for (const Step* step : *worker.part) perform(*step);
    worker.has_called = true;
    pass(worker, nullptr);
    if (leaves) return nullptr;
  }
}

void begin_part(Worker& worker, const Steps& part) {
  if (!worker.is_alive) {
    worker.is_alive = true;
    worker.has_called = false;
    if (pthread_create(&worker.thread, nullptr, work, &worker)) fail("no thread");
  }
  pass(worker, &part);
}

void end_part(Worker& worker, const Steps& part, bool main_takes_part) {
  wait_for(worker, false, main_takes_part);
  if (!is_last(part)) return;
  if (main_takes_part && g_wait_begin) g_wait_begin();
  pthread_join(worker.thread, nullptr);
  if (main_takes_part && g_wait_end) g_wait_end();
  worker.is_alive = false;
}

void perform(const Phase& phase, bool main_takes_part) {
  for (size_t i = 1; i < kThreads; ++i)
    if (!phase[i].empty()) begin_part(g_workers[i], phase[i]);
  for (const Step* step : phase[0])
    if (step->verb != "leave") perform(*step);
  for (size_t i = 1; i < kThreads; ++i)
    if (!phase[i].empty()) end_part(g_workers[i], phase[i], main_takes_part);
}

void perform(const std::vector<Step>& steps) {
  for (size_t i = 0; i < steps.size();) {
    // The first call is the main thread's: it starts the driver.
    const bool main_takes_part = i > 0;
    Phase phase;
    const bool is_aside = steps[i].is_aside;
    do {
      const int thread = steps[i].thread == kPeer ? 0 : steps[i].thread;
      phase[static_cast<size_t>(thread) % kThreads].push_back(&steps[i]);
      ++i;
    } while (is_aside && i < steps.size() && steps[i].is_aside);
    perform(phase, main_takes_part);
  }
}

// Takes the mark off, if it is there.
bool marked(std::string& verb, char mark) {
  if (verb[0] != mark) return false;
  verb.erase(0, 1);
  return true;
}

std::vector<Step> read_program(const char* path) {
  std::ifstream file(path);
  if (!file) fail(std::string("cannot read ") + path);
  std::vector<Step> steps;
  for (std::string line; std::getline(file, line);) {
    Step step{static_cast<int>(steps.size()), 0, "", "", "", false, false};
    std::istringstream words(line);
    words >> step.thread >> step.verb >> step.symbol;
    step.is_aside = marked(step.verb, '|');
    step.relies_on_order = marked(step.verb, '?');
    std::getline(words, step.arguments);
    steps.push_back(step);
  }
  return steps;
}

void map_slots() {
  const char* given = std::getenv("PROOF_SLOTS_FD");
  g_slots_fd = given ? std::atoi(given) : memfd_create("slots", 0);
  const size_t bytes = 4096;
  if (g_slots_fd < 0 || ftruncate(g_slots_fd, bytes)) fail("no memory to share");
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, g_slots_fd, 0);
  g_slots = static_cast<unsigned char*>(at);
}

// Until the first process is through.
int be_peer(int descriptor) {
  char line[4000];
  bool has_called = false;
  for (ssize_t size; (size = receive(descriptor, line, sizeof line, has_called)) > 0;) {
    has_called = true;
    Step step{0, 0, "", "", "", false, false};
    std::istringstream words(std::string(line, static_cast<size_t>(size)));
    words >> step.verb >> step.symbol;
    std::getline(words, step.arguments);
    const std::string answer = come_to(step);
    if (send(descriptor, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return 6;
  }
  return 0;
}

void* map_file(const char* path) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat about {};
  if (fd < 0 || fstat(fd, &about)) fail(std::string("cannot read ") + path);
  return mmap(nullptr, static_cast<size_t>(about.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
}

void open_driver() {
  g_driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!g_driver) fail(dlerror());
  g_wait_begin = reinterpret_cast<void (*)()>(dlsym(g_driver, "softgpu_wait_begin"));
  g_wait_end = reinterpret_cast<void (*)()>(dlsym(g_driver, "softgpu_wait_end"));
  if (const char* control = std::getenv("PROOF_CONTROL_FD")) g_control = std::atoi(control);
  g_daemon_needs_time = g_wait_begin && std::getenv("PROOF_DAEMON_NEEDS_TIME");
}

void fill_buffers() {
  g_buffers = static_cast<unsigned char*>(std::aligned_alloc(4096, kBuffers * kBufferBytes));
  for (size_t i = 0; i < kBuffers * kBufferBytes; ++i)
    g_buffers[i] = static_cast<unsigned char>(i * 167 + i / kBufferBytes * 31 + i / 256);
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) fail("usage: interpreter PROGRAM IMAGE");
  open_driver();
  fill_buffers();
  map_slots();
  if (words[1] == std::string("peer")) return be_peer(std::atoi(words[2]));
  g_image = map_file(words[2]);
  perform(read_program(words[1]));
  end_peer();
  for (const Word value : g_notes) say("note " + std::to_string(value) + "\n");
  for (const auto& [name, value] : g_handles)
    say("raw " + name + " " + std::to_string(value) + "\n");
  if (g_control >= 0) tell("end\n");
  return 0;
}
