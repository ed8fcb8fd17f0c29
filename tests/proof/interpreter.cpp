// Executes a program of driver calls and prints the outcome of each.
//
//   interpreter PROGRAM IMAGE
//   interpreter peer FD     the second process: reads steps from FD, and answers there
//
// A program has one step a line: `THREAD VERB WORDS`. Steps run one at a time, each on its thread.
// Consecutive steps of the form `|VERB` run side by side instead, in order only on each thread.
//
//   call SYMBOL ARGUMENT..   one call; `ask` the same, `poll` until it is not CUDA_ERROR_NOT_READY
//   order SYMBOL ARGUMENT..  like call; a `?VERB` is left out if the last order before it failed
//   name NEW OLD             from now on NEW also names the handle or address OLD
//   look BUFFER              a digest of the contents of a host buffer
//   hold                     asks the daemon to close the gate until a thread waits at it
//   tally                    asks the daemon to note what the job counts now
//   leave                    the thread ends
//
// Every argument of a driver call is a whole number or a pointer, so one kind of call does for all:
//
//   12 -1 0x7        a number                    s3 d1+64   a handle or address made before, else 0
//   s3!              the same, but the step is left out if there is none
//   &s3              where the call writes a handle; kept as s3 if the call succeeds
//   #4 #8=5          where it writes a number of 4 or 8 bytes, which is shown; ~8 is not shown
//   H2+16            host buffer 2, pageable     "text      a string
//   {24;0/8=d1;8/4=7}    a struct of 24 bytes: offset/width=argument
//   [s1,s2]          an array of 8-byte values   <d1,7>     kernel parameters
//   @note @image     our host function, the file IMAGE in memory
//   $0               64 bytes that both processes share; in a call that opens a handle, their value
//
// Thread 9 is the main thread of the second process, which has handles of its own.
//
// Output: `INDEX CODE SHOWN..` for each step, then the host functions in the order they ran.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <fstream>
#include <sstream>

#include "interpreter_calls.h"

namespace proof {
namespace {

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

// Sends one line to the second process and returns its answer; the clock does not wait meanwhile.
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

// Performs a step and returns its outcome as text.
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
  if (g_says_steps && is_call(step.verb)) tell("step\n");
  const std::string line = std::to_string(step.index) + come_to(step) + "\n";
  const bool asks = g_held && is_call(step.verb);
  if (asks && tell("done " + std::to_string(step.index) + "\n") == 'o') g_held = false;
  say(line);
}

// The steps of each thread; the main thread is 0.
using Steps = std::vector<const Step*>;
using Phase = std::array<Steps, kThreads>;

// A thread that performs its part of a phase when asked to.
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
    // The main thread makes the first call, which starts the driver.
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

// Removes the mark if it is there, and tells whether it was.
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

// Performs steps until the first process is done.
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
  struct stat about{};
  if (fd < 0 || fstat(fd, &about)) fail(std::string("cannot read ") + path);
  return mmap(nullptr, static_cast<size_t>(about.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
}

void open_driver() {
  g_driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!g_driver) fail(dlerror());
  g_wait_begin = reinterpret_cast<void (*)()>(dlsym(g_driver, "softgpu_wait_begin"));
  g_wait_end = reinterpret_cast<void (*)()>(dlsym(g_driver, "softgpu_wait_end"));
  if (const char* control = std::getenv("PROOF_CONTROL_FD")) g_control = std::atoi(control);
  g_says_steps = g_control >= 0 && std::getenv("PROOF_SAYS_STEPS");
  g_daemon_needs_time = g_wait_begin && std::getenv("PROOF_DAEMON_NEEDS_TIME");
}

void fill_buffers() {
  g_buffers = static_cast<unsigned char*>(std::aligned_alloc(4096, kBuffers * kBufferBytes));
  for (size_t i = 0; i < kBuffers * kBufferBytes; ++i)
    g_buffers[i] = static_cast<unsigned char>(i * 167 + i / kBufferBytes * 31 + i / 256);
}

}  // namespace
}  // namespace proof

using namespace proof;

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
