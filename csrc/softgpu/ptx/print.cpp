// The functions provided to device code: vprintf, __assertfail, malloc and free.
#include "print.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "access.h"
#include "control.h"
#include "lanes.h"
#include "run.h"

namespace softgpu::ptx {
namespace {

constexpr size_t kBufferBytes = 1 << 20;  // the default of CU_LIMIT_PRINTF_FIFO_SIZE

// Protects printed(), the text not yet written out. Held only to copy text.
std::mutex& print_mutex() {
  static auto* mutex = new std::mutex;  // never destroyed: threads that use it may outlive main()
  return *mutex;
}
std::string& printed() {
  static auto* text = new std::string;
  return *text;
}

// The arguments of one lane's call, as laid out in its frame.
struct Arguments {
  const char* frame;
  const uint32_t* offsets;
  uint64_t word(size_t i) const {
    uint64_t value;
    memcpy(&value, frame + offsets[i], sizeof value);
    return value;
  }
};

const char* text_at(uint64_t address) { return reinterpret_cast<const char*>(address); }

// One conversion of a format string: flags, width, precision, length, letter.
struct Conversion {
  std::string flags;  // from '%' up to the length
  std::string length;
  char letter = 0;
};

Conversion read_conversion(const char*& at) {
  Conversion found;
  found.flags = "%";
  for (++at; *at != 0 && strchr("-+ #0123456789.*", *at) != nullptr; ++at) found.flags += *at;
  for (; *at != 0 && strchr("hlLqjzt", *at) != nullptr; ++at) found.length += *at;
  found.letter = *at;
  if (*at != 0) ++at;
  return found;
}

// Next value of the packed argument list, in which each is aligned to its own size.
template <class T>
T next_value(const char* list, size_t* at) {
  *at = (*at + sizeof(T) - 1) / sizeof(T) * sizeof(T);
  T value;
  memcpy(&value, list + *at, sizeof value);
  *at += sizeof value;
  return value;
}

template <class T>
void append(std::string* out, const std::string& format, T value) {
  char text[512];
  const int length = snprintf(text, sizeof text, format.c_str(), value);
  if (length > 0) out->append(text, std::min<size_t>(static_cast<size_t>(length), sizeof text - 1));
}

void append_conversion(std::string* out, Conversion what, const char* list, size_t* at) {
  for (size_t star; (star = what.flags.find('*')) != std::string::npos;) {
    what.flags.replace(star, 1, std::to_string(next_value<int32_t>(list, at)));
  }
  const bool wide = what.length.find_first_of("ljzqt") != std::string::npos;
  const std::string whole = what.flags + (wide ? "ll" : what.length) + what.letter;
  switch (what.letter) {
    case '%': out->push_back('%'); return;
    case 'd':
    case 'i':
      if (wide) return append(out, whole, static_cast<long long>(next_value<int64_t>(list, at)));
      return append(out, whole, next_value<int32_t>(list, at));
    case 'u':
    case 'o':
    case 'x':
    case 'X':
      if (wide) {
        return append(out, whole, static_cast<unsigned long long>(next_value<uint64_t>(list, at)));
      }
      return append(out, whole, next_value<uint32_t>(list, at));
    case 'c': return append(out, what.flags + 'c', next_value<int32_t>(list, at));
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
    case 'a':
    case 'A': return append(out, what.flags + what.letter, next_value<double>(list, at));
    case 'p':
      return append(out, what.flags + 'p', reinterpret_cast<void*>(next_value<uint64_t>(list, at)));
    case 's': {
      const uint64_t text = next_value<uint64_t>(list, at);
      if (what.flags == "%") {
        *out += text != 0 ? text_at(text) : "(null)";
      } else {
        append(out, what.flags + 's', text != 0 ? text_at(text) : "(null)");
      }
      return;
    }
    default: *out += what.flags + what.length + what.letter;
  }
}

int32_t print(const Arguments& arguments) {
  const char* format = text_at(arguments.word(0));
  const char* list = text_at(arguments.word(1));
  if (format == nullptr) return -1;
  std::string text;
  size_t at = 0;
  int32_t values = 0;
  while (*format != 0) {
    if (*format != '%') {
      text.push_back(*format++);
      continue;
    }
    const Conversion conversion = read_conversion(format);
    if (conversion.letter == 0) break;
    values += conversion.letter != '%';
    append_conversion(&text, conversion, list, &at);
  }
  const std::lock_guard<std::mutex> lock(print_mutex());
  // A full buffer drops the newest text; on a GPU it drops the oldest.
  if (printed().size() + text.size() <= kBufferBytes) printed() += text;
  return values;
}

void fail_assertion(const Warp& warp, const Arguments& arguments, uint32_t lane) {
  const Block& block = *warp.block;
  const Launch& launch = *block.launch;
  const uint32_t thread = warp.index * kLanes + lane;
  uint32_t line;
  memcpy(&line, arguments.frame + arguments.offsets[2], sizeof line);
  fprintf(stderr, "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n",
          text_at(arguments.word(1)), line, text_at(arguments.word(3)), block.index[0],
          block.index[1], block.index[2], thread % launch.block[0],
          thread / launch.block[0] % launch.block[1], thread / (launch.block[0] * launch.block[1]),
          text_at(arguments.word(0)));
}

}  // namespace

bool call_builtin(Warp& warp, const Instr& in, uint32_t mask) {
  const Frame& frame = warp.frame();
  const auto which = static_cast<Builtin>(in.mode);
  const uint32_t* offsets = frame.function->extra.data() + in.extra;
  each_lane(mask, [&](uint32_t lane) {
    const uint64_t thread = uint64_t{warp.index} * kLanes + lane;
    char* local = warp.block->local + thread * warp.block->thread_local_bytes + frame.local_offset;
    const Arguments arguments{local, offsets + in.dst};
    if (which == Builtin::kPrintf) {
      const int32_t values = print(arguments);
      memcpy(local + offsets[0], &values, sizeof values);
    } else if (which == Builtin::kAssertFail) {
      fail_assertion(warp, arguments, lane);
    } else if (which == Builtin::kMalloc) {
      void* memory = malloc(arguments.word(0));
      memcpy(local + offsets[0], &memory, sizeof memory);
    } else {
      free(reinterpret_cast<void*>(arguments.word(0)));
    }
  });
  if (which == Builtin::kAssertFail) warp.block->fail(CUDA_ERROR_ASSERT);
  return warp.block->error == CUDA_SUCCESS;
}

bool anything_printed() {
  const std::lock_guard<std::mutex> lock(print_mutex());
  return !printed().empty();
}

void flush_printed() {
  std::string text;
  {
    const std::lock_guard<std::mutex> lock(print_mutex());
    text.swap(printed());
  }
  if (text.empty()) return;
  fwrite(text.data(), 1, text.size(), stdout);
  fflush(stdout);
}

}  // namespace softgpu::ptx
