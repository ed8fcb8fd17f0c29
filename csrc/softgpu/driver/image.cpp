#include "image.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

namespace softgpu {
namespace {

constexpr uint16_t kMachineCuda = 190;  // EM_CUDA
constexpr uint32_t kFatbinWrapper = 0x466243b1, kFatbin = 0xba55ed50;

template <class T>
T at(const char* from) {
  T value;
  memcpy(&value, from, sizeof value);
  return value;
}

void read_elf(const char* bytes, Image* image) {
  const auto header = at<Elf64_Ehdr>(bytes);
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return;
  // Linkers put the section table last, unless a section follows: take the furthest end.
  size_t end = header.e_shoff + size_t{header.e_shnum} * header.e_shentsize;
  if (header.e_shnum == 0 || header.e_shstrndx >= header.e_shnum) return;
  const auto section = [&](unsigned i) {
    return at<Elf64_Shdr>(bytes + header.e_shoff + size_t{i} * header.e_shentsize);
  };
  const char* names = bytes + section(header.e_shstrndx).sh_offset;
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr s = section(i);
    if (s.sh_type != SHT_NOBITS) end = std::max<size_t>(end, s.sh_offset + s.sh_size);
    const std::string name = names + s.sh_name;
    if (name == ".tandem_kernels") {
      image->kind = ImageKind::kKernelLibrary;
      image->entries_offset = s.sh_addr;
      image->entries_bytes = s.sh_size;
    } else if (header.e_machine == kMachineCuda && name.rfind(".text.", 0) == 0) {
      image->kernels.push_back(name.substr(6));
    }
  }
  if (header.e_machine == kMachineCuda) image->kind = ImageKind::kCubin;
  image->bytes = end;
}

void read_ptx(const std::string& text, Image* image) {
  image->kind = ImageKind::kPtx;
  for (size_t found = 0; (found = text.find(".entry", found)) != std::string::npos;) {
    const size_t begin = text.find_first_not_of(" \t\r\n", found + 6);
    const size_t end = text.find_first_of("( \t\r\n", begin);
    if (end == std::string::npos) return;
    image->kernels.push_back(text.substr(begin, end - begin));
    found = end;
  }
}

}  // namespace

Image inspect_image(const void* given) {
  Image image;
  const char* bytes = static_cast<const char*>(given);
  if (memcmp(bytes, ELFMAG, SELFMAG) == 0) {
    read_elf(bytes, &image);
  } else if (at<uint32_t>(bytes) == kFatbin || at<uint32_t>(bytes) == kFatbinWrapper) {
    image.kind = ImageKind::kFatbin;
  } else if (std::string_view(bytes).find(".version") != std::string_view::npos) {
    read_ptx(bytes, &image);
  }
  return image;
}

}  // namespace softgpu
