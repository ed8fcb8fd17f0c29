#include "offers.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "descriptor.h"
#include "helper.h"
#include "mutex.h"
#include "put_off.h"
#include "share.h"
#include "swappable.h"
#include "system_calls.h"

namespace tandem::shim::swap {
namespace {

// So that a flooded socket does not keep the helper from its other work.
constexpr int kQuestionsARound = 16;

pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;  // serialises making the socket
std::atomic<uint64_t> g_name{0};                     // 0 = nothing was offered yet
Descriptor g_socket;

bool bind_socket(uint64_t name) {
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  sockaddr_un address;
  const socklen_t size = share_address(name, &address);
  const int yes = 1;
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)) != 0) {
    close(fd);
    return false;
  }
  g_socket.adopt(fd);
  return true;
}

// The name of the socket; 0 = it could not be created.
uint64_t listen_for_openers() {
  const HoldsMutex lock(&g_lock);
  uint64_t name = g_name.load(std::memory_order_relaxed);
  if (!name && (!random_bytes(&name, sizeof(name)) || !bind_socket(name))) return 0;
  g_name.store(name, std::memory_order_release);
  return name;
}

struct Asked {
  Question question{};
  sockaddr_un from{};
  socklen_t from_bytes = 0;
  int64_t user = -1;
};

// Descriptors that come with a question are dropped: there is no room for any.
bool receive(int fd, Asked* asked) {
  iovec part{&asked->question, sizeof(asked->question)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  msghdr message{};
  message.msg_name = &asked->from;
  message.msg_namelen = sizeof(asked->from);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return false;
  asked->from_bytes = message.msg_namelen;
  asked->user = user_of(&message);
  if (got != sizeof(asked->question)) asked->question.magic = 0;
  return true;
}

void send_answer(int fd, const Asked& asked, const Answer& answer, const Exported* pieces) {
  iovec part{const_cast<Answer*>(&answer), sizeof(answer)};
  alignas(cmsghdr) char control[CMSG_SPACE(kPiecesAnAnswer * sizeof(int))] = {};
  msghdr message{};
  message.msg_name = const_cast<sockaddr_un*>(&asked.from);
  message.msg_namelen = asked.from_bytes;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (answer.count) {
    const size_t bytes = answer.count * sizeof(int);
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(bytes);
    for (size_t i = 0; i < answer.count; ++i)
      std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &pieces[i].fd, sizeof(int));
  }
  // A process that does not read has its own deadline.
  sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// Whether the allocation is the one of which the handle was made: not freed, and not another one in
// its place.
bool is_there(const Question& question, const Range& whole) {
  const CUdeviceptr address = whole.base + question.offset;
  const Range now = range_at(address);
  return now.bytes && now.base == address && now.buffer_id == question.number &&
         !is_put_off(address);
}

void answer_one(int fd, const Asked& asked, uid_t own) {
  const Question& question = asked.question;
  if (question.magic != kShareMagic) return;
  Answer answer{};
  answer.magic = kShareMagic;
  answer.first = question.first;
  Exported pieces[kPiecesAnAnswer] = {};
  uint64_t reserved = 0;
  const Range whole =
      asked.user == int64_t{own} ? pinned_region(question.token, &reserved) : Range{};
  if (whole.bytes && question.offset < reserved && is_there(question, whole)) {
    answer.count = export_pieces(question.token, question.first, pieces, kPiecesAnAnswer);
    answer.reserved = reserved;
  }
  for (size_t i = 0; i < answer.count; ++i) answer.part[i] = {pieces[i].at, pieces[i].bytes};
  send_answer(fd, asked, answer, pieces);
  for (size_t i = 0; i < answer.count; ++i) close(pieces[i].fd);
}

}  // namespace

CUresult offer(CUdeviceptr address, CUipcMemHandle* out) {
  const Range range = range_at(address);
  if (!range.bytes) return CUDA_ERROR_NOT_FOUND;
  const Range whole = range_of(range.base);
  Token fresh{};
  const uint64_t name = random_bytes(&fresh, sizeof(fresh)) ? listen_for_openers() : 0;
  const Token token = name ? pin_region(whole.base, fresh) : Token{};
  if (!token) return CUDA_ERROR_NOT_SUPPORTED;
  wake_helper();  // the helper watches the socket from now on
  const ShareHandle handle{kShareMagic,     name, token, range.base - whole.base, range.bytes,
                           range.buffer_id, 0};
  std::memcpy(out, &handle, sizeof(handle));
  return CUDA_SUCCESS;
}

int openers_socket() {
  const uint64_t name = g_name.load(std::memory_order_acquire);
  if (!name) return -1;
  const int fd = g_socket.number();
  if (fd >= 0) return fd;
  const HoldsMutex lock(&g_lock);  // the job has closed it
  return bind_socket(name) ? g_socket.number() : -1;
}

void answer_openers(uid_t own) {
  const int fd = openers_socket();
  if (fd < 0) return;
  for (int i = 0; i < kQuestionsARound; ++i) {
    Asked asked;
    if (!receive(fd, &asked)) return;
    answer_one(fd, asked, own);
  }
}

bool is_own_offer(const CUipcMemHandle& handle) {
  ShareHandle given;
  std::memcpy(&given, &handle, sizeof(given));
  return given.socket == g_name.load(std::memory_order_acquire);
}

void forget_offers() {
  pthread_mutex_init(&g_lock, nullptr);
  g_name.store(0, std::memory_order_relaxed);
  g_socket.drop();
}

}  // namespace tandem::shim::swap
