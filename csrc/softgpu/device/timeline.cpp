#include "timeline.h"

#include <cinttypes>
#include <cstdio>
#include <utility>

namespace tandem::softgpu {
namespace {

const char* kind_name(OpKind kind) {
  switch (kind) {
    case OpKind::kKernel: return "kernel";
    case OpKind::kCopyHtoD: return "copy_htod";
    case OpKind::kCopyDtoH: return "copy_dtoh";
    case OpKind::kCopyDtoD: return "copy_dtod";
    case OpKind::kMemset: return "memset";
    case OpKind::kHostFunc: return "host";
    case OpKind::kEvent: return "event";
    case OpKind::kMemOpWrite: return "memop_write";
    case OpKind::kMemOpWait: return "memop_wait";
  }
  return "unknown";
}

// Bytes moved when `remaining` of the whole was left. Differences between such values add up
// exactly.
uint64_t bytes_moved(const Op& op, double remaining) {
  if (remaining <= 0) return op.bytes;
  return static_cast<uint64_t>(static_cast<double>(op.bytes) * (1 - remaining));
}

}  // namespace

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte >= 0x7f) {  // names are ASCII; other bytes are shown as Latin-1
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

void Timeline::part(const Op& op, uint64_t now_ns, bool last) {
  if (!enabled_) return;
  char head[256];
  std::snprintf(head, sizeof head,
                "{\"t_start_ns\":%" PRIu64 ",\"t_end_ns\":%" PRIu64
                ",\"gpu\":%u,\"context\":%" PRIu64 ",\"pid\":%d,\"stream\":%" PRIu64
                ",\"kind\":\"%s\",\"name\":",
                op.part_start_ns, now_ns, op.context->gpu, op.context->number, op.client->pid,
                op.stream->number, kind_name(op.kind));
  char tail[192];
  std::snprintf(tail, sizeof tail,
                ",\"sms\":%u,\"bytes\":%" PRIu64 ",\"op\":%" PRIu64
                ",\"client\":%u,\"part\":%u,\"last\":%s,\"sm_set\":\"",
                op.sms, bytes_moved(op, op.remaining) - bytes_moved(op, op.part_remaining), op.id,
                op.client->id, op.part, last ? "true" : "false");
  text_ += head + json_string(op.name) + tail + text_of(op.sm_set) +
           "\",\"t_ready_ns\":" + std::to_string(op.ready_ns) + "}\n";
}

void Timeline::context_switch(const Context& to, uint64_t start_ns, uint64_t end_ns) {
  if (!enabled_) return;
  char line[400];
  std::snprintf(line, sizeof line,
                "{\"t_start_ns\":%" PRIu64 ",\"t_end_ns\":%" PRIu64
                ",\"gpu\":%u,\"context\":%" PRIu64
                ",\"pid\":%d,\"stream\":0,\"kind\":\"switch\",\"name\":\"\",\"sms\":0,\"bytes\":0,"
                "\"op\":0,\"client\":%u,\"part\":0,\"last\":true,\"sm_set\":\"\","
                "\"t_ready_ns\":%" PRIu64 "}\n",
                start_ns, end_ns, to.gpu, to.number, to.client->pid, to.client->id, start_ns);
  text_ += line;
}

std::string Timeline::take() { return std::exchange(text_, {}); }

}  // namespace tandem::softgpu
