// Module images of any origin: what they say, and that no byte of a broken one is trusted.
#include <elf.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "decompress.h"
#include "elf_image.h"
#include "fatbin.h"
#include "image.h"
#include "link_image.h"

namespace softgpu {
namespace {

constexpr char kPtx[] = R"(
// .entry in_a_comment(
.version 8.0
.target sm_80, debug
.address_size 64
.visible .entry scale(.param .u64 x, .param .f32 by)
.maxntid 128, 2, 1
.maxnreg 40
{ ret; }
.entry plain() { ret; } /* .entry hidden( */
.func helper() { ret; }
)";

Bytes view(const std::string& text) { return {text.data(), text.size()}; }

// A heap block of exactly these bytes, so that a sanitizer sees every read beyond its end.
struct Exact {
  explicit Exact(const std::string& text) : bytes(text.begin(), text.end()) {
    bytes.shrink_to_fit();
  }
  std::vector<char> bytes;
  Bytes view() const { return {bytes.data(), bytes.size()}; }
};

template <class T>
void append(std::string* out, const T& value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string fatbin_entry(uint16_t kind, uint32_t arch, uint64_t flags, const std::string& payload,
                         uint64_t plain_bytes) {
  std::string entry;
  const std::string padded = payload + std::string((8 - payload.size() % 8) % 8, '\0');
  append(&entry, kind);
  append(&entry, uint16_t{0x101});
  append(&entry, uint32_t{64});
  append(&entry, uint64_t{padded.size()});
  append(&entry, static_cast<uint32_t>(plain_bytes ? payload.size() : 0));
  append(&entry, uint32_t{0});
  append(&entry, uint32_t{0});
  append(&entry, arch);
  append(&entry, uint64_t{0});
  append(&entry, flags);
  append(&entry, uint64_t{0});
  append(&entry, plain_bytes);
  return entry + padded;
}

std::string fatbin(const std::string& entries) {
  std::string image;
  append(&image, uint32_t{0xba55ed50});
  append(&image, uint16_t{1});
  append(&image, uint16_t{16});
  append(&image, uint64_t{entries.size()});
  return image + entries;
}

// Makes an ELF of the CUDA machine with these sections.
std::string cubin(const std::vector<std::pair<std::string, std::string>>& sections) {
  std::string names(1, '\0'), body;
  std::vector<Elf64_Shdr> headers(1);
  for (const auto& [name, content] : sections) {
    Elf64_Shdr header{};
    header.sh_name = static_cast<Elf64_Word>(names.size());
    header.sh_type = SHT_PROGBITS;
    header.sh_offset = sizeof(Elf64_Ehdr) + body.size();
    header.sh_size = content.size();
    names += name + '\0';
    body += content;
    headers.push_back(header);
  }
  Elf64_Shdr strings{};
  strings.sh_type = SHT_STRTAB;
  strings.sh_offset = sizeof(Elf64_Ehdr) + body.size();
  strings.sh_size = names.size();
  headers.push_back(strings);
  Elf64_Ehdr header{};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_machine = kMachineCuda;
  header.e_flags = 0x5a055a;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = static_cast<Elf64_Half>(headers.size());
  header.e_shstrndx = static_cast<Elf64_Half>(headers.size() - 1);
  header.e_shoff = sizeof header + body.size() + names.size();
  std::string image;
  append(&image, header);
  image += body + names;
  for (const Elf64_Shdr& section : headers) append(&image, section);
  return image;
}

std::string info_attribute(uint8_t attribute, const std::vector<uint32_t>& words) {
  std::string out;
  append(&out, uint8_t{4});
  append(&out, attribute);
  append(&out, static_cast<uint16_t>(words.size() * 4));
  for (uint32_t word : words) append(&out, word);
  return out;
}

std::string archive_of(const std::string& content) {
  char header[61];
  snprintf(header, sizeof header, "%-16s%-12d%-6d%-6d%-8d%-10zu`\n", "code.o/", 0, 0, 0, 0,
           content.size());
  return "!<arch>\n" + std::string(header, 60) + content + (content.size() % 2 ? "\n" : "");
}

// Returns an intact image of every kind.
std::vector<std::string> seeds() {
  const std::string lz4{
      "\x28"
      "ab\x02\x00\x10"
      "!",
      7};
  const std::string fat =
      fatbin(fatbin_entry(1, 80, 0x11, kPtx, 0) + fatbin_entry(2, 90, 0x2011, lz4, 15));
  const std::string object =
      cubin({{".text.f", "code"}, {".nv.info.f", info_attribute(5, {1, 2, 3})}});
  return {kPtx, object, fat, make_linked_image({kPtx, "x"}, 90), archive_of(fat)};
}

// Does everything that loading does before it runs anything.
void look_at(Bytes bytes) {
  const Image image = inspect_image(bytes);
  CHECK(image.kind != ImageKind::kBroken || !image.problem.empty());
  if (image.kind == ImageKind::kLinked) {
    std::vector<Bytes> inputs;
    if (read_linked_inputs(image.linked, &inputs)) {
      for (Bytes input : inputs) inspect_image(input);
    }
  }
  std::vector<Bytes> device_code;
  if (find_device_code(bytes, &device_code)) {
    for (Bytes found : device_code) inspect_image(found);
  }
  std::vector<FatbinEntry> entries;
  if (image.kind != ImageKind::kFatbin || !read_fatbin(bytes, &entries)) return;
  for (const FatbinEntry& entry : entries) {
    std::string plain;
    if (entry.compression == Compression::kLz4) {
      decode_lz4(entry.payload, entry.plain_bytes, &plain);
    }
    inspect_image(entry.compression == Compression::kNone ? entry.payload : view(plain));
  }
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

TEST(ptx_shows_its_kernels_and_their_bounds) {
  const Image image = inspect_image(view(kPtx));
  CHECK(image.kind == ImageKind::kPtx);
  CHECK_EQ(image.arch, 80U);
  CHECK_EQ(image.kernels.size(), size_t{2});
  CHECK(image.kernels[0].name == "scale" && image.kernels[1].name == "plain");
  CHECK_EQ(image.kernels[0].traits.max_threads, 256U);
  CHECK_EQ(image.kernels[0].traits.registers, 40U);
  CHECK_EQ(image.kernels[1].traits.max_threads, 1024U);
}

TEST(ptx_that_no_compiler_would_take_has_its_own_errors) {
  CHECK_EQ(inspect_image(view("kernel void f() {}")).error, CUDA_ERROR_INVALID_PTX);
  CHECK_EQ(inspect_image(view(".version 99.0\n.target sm_90\n")).error,
           CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  CHECK_EQ(inspect_image(view(".version 8.0\n.entry f() {}")).error, CUDA_ERROR_INVALID_PTX);
  CHECK_EQ(inspect_image(view(std::string(64, '\0'))).error, CUDA_ERROR_INVALID_IMAGE);
  CHECK_EQ(inspect_image({nullptr, 0}).error, CUDA_ERROR_INVALID_IMAGE);
}

TEST(a_cubin_with_line_information_shows_the_ptx_it_was_made_of) {
  const std::string lines("\0.version 8.0\0.target sm_90\0.entry f() { ret; }\0", 48);
  const Exact with(cubin({{".text.f", "code"}, {".nv_debug_ptx_txt", lines}}));
  const Exact without(cubin({{".text.f", "code"}}));
  CHECK(inspect_image(with.view()).embedded_ptx ==
        "\n.version 8.0\n.target sm_90\n.entry f() { ret; }\n");
  CHECK(inspect_image(without.view()).embedded_ptx.empty());
}

TEST(a_cubin_shows_kernels_registers_and_bounds) {
  const std::string info = info_attribute(0x05, {64, 4, 1});
  const Exact exact(cubin({{".text.vadd", "code"}, {".nv.info.vadd", info}}));
  const Image image = inspect_image(exact.view());
  CHECK(image.kind == ImageKind::kCubin);
  CHECK_EQ(image.arch, 0x5aU);
  CHECK_EQ(image.bytes.size, exact.bytes.size());
  CHECK_EQ(image.kernels.size(), size_t{1});
  CHECK_EQ(image.kernels[0].traits.max_threads, 256U);
}

TEST(a_fat_binary_lists_entries_of_known_kinds) {
  const std::string image =
      fatbin(fatbin_entry(1, 80, 0x11, kPtx, 0) + fatbin_entry(7, 90, 0x11, "something new", 0) +
             fatbin_entry(2, 90, 0x2011,
                          "\x30"
                          "abc",
                          3));
  std::vector<FatbinEntry> entries;
  CHECK(read_fatbin(view(image), &entries));
  CHECK_EQ(entries.size(), size_t{2});
  CHECK(entries[0].kind == FatbinKind::kPtx && entries[0].compression == Compression::kNone);
  CHECK(entries[1].kind == FatbinKind::kElf && entries[1].compression == Compression::kLz4);
  CHECK_EQ(entries[1].payload.size, size_t{4});
}

TEST(lz4_blocks_decode) {
  std::string out;
  const std::string literals =
      "\x30"
      "abc";
  CHECK(decode_lz4(view(literals), 3, &out) && out == "abc");
  // "ab", then twelve bytes from two back, then the last literal.
  const std::string overlapping{
      "\x28"
      "ab\x02\x00\x10"
      "!",
      7};
  CHECK(decode_lz4(view(overlapping), 15, &out) && out == "ababababababab!");
  std::string run{
      "\x1f"
      "x\x01\x00\xff\x05",
      6};  // 15 + 255 + 5 + 4 more
  run += std::string{
      "\x10"
      "y",
      2};
  CHECK(decode_lz4(view(run), 281, &out) && out == std::string(280, 'x') + "y");
}

TEST(lz4_blocks_that_lie_are_refused) {
  std::string out;
  const std::string before_begin{
      "\x10"
      "a\x05\x00\x10"
      "b",
      6},
      zero{
          "\x10"
          "a\x00\x00\x10"
          "b",
          6};
  CHECK(!decode_lz4(view("\x30"
                         "abc"),
                    2, &out));
  CHECK(!decode_lz4(view("\x30"
                         "abc"),
                    4, &out));
  CHECK(!decode_lz4(view("\xf0"), 300, &out));
  CHECK(!decode_lz4(view(before_begin), 6, &out));
  CHECK(!decode_lz4(view(zero), 6, &out));
  CHECK(!decode_lz4(view("\x30"
                         "abc"),
                    SIZE_MAX, &out));
}

TEST(what_the_linker_made_gives_its_inputs_back) {
  const Exact exact(make_linked_image({"first", kPtx, ""}, 90));
  const Image image = inspect_image(exact.view());
  CHECK(image.kind == ImageKind::kLinked);
  CHECK_EQ(image.bytes.size, exact.bytes.size());
  std::vector<Bytes> inputs;
  CHECK(read_linked_inputs(image.linked, &inputs));
  CHECK_EQ(inputs.size(), size_t{3});
  CHECK(std::string(inputs[0].data, inputs[0].size) == "first");
  CHECK(inspect_image(inputs[1]).kind == ImageKind::kPtx);
}

TEST(archives_and_objects_give_their_device_code) {
  const std::string fat = fatbin(fatbin_entry(1, 80, 0x11, kPtx, 0));
  const std::string archive = archive_of(fat);
  std::vector<Bytes> found;
  CHECK(find_device_code(view(archive), &found));
  CHECK_EQ(found.size(), size_t{1});
  CHECK(std::string(found[0].data, found[0].size) == fat);
  found.clear();
  CHECK(!find_device_code(view(archive.substr(0, archive.size() - 8)), &found));
}

TEST(readable_memory_ends_where_the_pages_do) {
  const std::string text(100, 'x');
  CHECK(readable_from(text.data()).size >= 100);
  CHECK_EQ(readable_from(nullptr).size, size_t{0});
}

TEST(no_cut_of_an_image_is_read_behind_its_end) {
  for (const std::string& seed : seeds()) {
    for (size_t length = 0; length <= seed.size(); ++length) {
      look_at(Exact(seed.substr(0, length)).view());
    }
  }
}

TEST(no_flipped_byte_of_an_image_is_believed) {
  const std::vector<std::string> whole = seeds();
  std::mt19937 random(20);
  for (int round = 0; round < 20'000; ++round) {
    std::string image = whole[random() % whole.size()];
    for (uint32_t flips = 1 + random() % 4; flips > 0; --flips) {
      // Edge values break more than other values do.
      const uint8_t values[] = {0, 1, 127, 128, 255, static_cast<uint8_t>(random())};
      image[random() % image.size()] = static_cast<char>(values[random() % sizeof values]);
    }
    look_at(Exact(image).view());
  }
}
