#include "link_image.h"

#include <elf.h>

#include <algorithm>
#include <charconv>

#include "elf_image.h"
#include "fatbin.h"

namespace softgpu {
namespace {

struct LinkedInput {
  uint64_t bytes;
};

struct ArchiveMember {  // of ar(1); text fields padded with spaces
  char name[16], date[12], user[6], group[6], mode[8], size[10], end[2];
};
static_assert(sizeof(ArchiveMember) == 60);

constexpr std::string_view kArchiveMagic = "!<arch>\n";

bool read_archive(Bytes archive, std::vector<Bytes>* members) {
  for (size_t at = kArchiveMagic.size(); at < archive.size;) {
    ArchiveMember header;
    Bytes content;
    size_t bytes = 0;
    if (!archive.read(at, &header)) return false;
    const auto parsed = std::from_chars(header.size, header.size + sizeof header.size, bytes);
    if (parsed.ec != std::errc() || !archive.part(at + sizeof header, bytes, &content))
      return false;
    const bool index = header.name[0] == '/' && (header.name[1] < '0' || header.name[1] > '9');
    if (!index) members->push_back(content);
    at += sizeof header + bytes + bytes % 2;
  }
  return true;
}

// A section of fat binaries, one after the other, with zeros between them.
void split_fatbins(Bytes section, std::vector<Bytes>* images) {
  while (section.size >= sizeof(uint64_t)) {
    if (!is_fatbin(section)) {
      section = {section.data + sizeof(uint64_t), section.size - sizeof(uint64_t)};
      continue;
    }
    Bytes one = section;
    one.size = fatbin_length(section);
    images->push_back(one);
    const size_t step = std::min(section.size, (one.size + 7) / 8 * 8);
    section = {section.data + step, section.size - step};
  }
}

size_t padded(size_t bytes) { return (bytes + 7) / 8 * 8; }

template <class T>
void append(std::string* out, const T& value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

Elf64_Ehdr elf_header(uint32_t arch) {
  constexpr unsigned char kCudaOsAbi = 0x41, kAbiVersion = 8;
  Elf64_Ehdr header{};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_ident[EI_OSABI] = kCudaOsAbi;
  header.e_ident[EI_ABIVERSION] = kAbiVersion;
  header.e_type = ET_EXEC;
  header.e_machine = kMachineCuda;
  header.e_version = EV_CURRENT;
  header.e_flags = arch << 8;
  header.e_ehsize = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  return header;
}

}  // namespace

bool find_device_code(Bytes input, std::vector<Bytes>* images) {
  const bool archive = input.size >= kArchiveMagic.size() &&
                       memcmp(input.data, kArchiveMagic.data(), kArchiveMagic.size()) == 0;
  if (archive) {
    std::vector<Bytes> members;
    if (!read_archive(input, &members)) return false;
    for (const Bytes member : members) {
      if (!find_device_code(member, images)) return false;
    }
    return true;
  }
  Elf64_Ehdr header;
  const bool object = input.read(0, &header) && memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
                      header.e_type == ET_REL && header.e_machine != kMachineCuda;
  if (!object) {
    images->push_back(input);
    return true;
  }
  std::vector<Bytes> sections;
  if (!find_sections(input, ".nv_fatbin", &sections) ||
      !find_sections(input, "__nv_relfatbin", &sections)) {
    return false;
  }
  for (const Bytes section : sections) split_fatbins(section, images);
  return true;
}

std::string make_linked_image(const std::vector<std::string>& inputs, uint32_t arch) {
  std::string body;
  for (const std::string& input : inputs) {
    append(&body, LinkedInput{input.size()});
    body += input;
    body.resize(padded(body.size()));
  }
  std::string names(1, '\0');
  Elf64_Shdr sections[3]{};
  sections[1].sh_name = static_cast<Elf64_Word>(names.size());
  sections[1].sh_type = SHT_PROGBITS;
  sections[1].sh_offset = sizeof(Elf64_Ehdr);
  sections[1].sh_size = body.size();
  sections[1].sh_addralign = 8;
  names.append(kLinkedSection, sizeof kLinkedSection);
  sections[2].sh_name = static_cast<Elf64_Word>(names.size());
  sections[2].sh_type = SHT_STRTAB;
  sections[2].sh_offset = sections[1].sh_offset + body.size();
  constexpr char kNames[] = ".shstrtab";
  names.append(kNames, sizeof kNames);
  sections[2].sh_size = names.size();
  sections[2].sh_addralign = 1;
  names.resize(padded(names.size()));

  Elf64_Ehdr header = elf_header(arch);
  header.e_shoff = sections[2].sh_offset + names.size();
  header.e_shnum = 3;
  header.e_shstrndx = 2;
  std::string image;
  append(&image, header);
  image += body + names;
  append(&image, sections);
  return image;
}

bool read_linked_inputs(Bytes section, std::vector<Bytes>* inputs) {
  for (size_t at = 0; at < section.size;) {
    LinkedInput header;
    Bytes input;
    if (!section.read(at, &header) || !section.part(at + sizeof header, header.bytes, &input)) {
      return false;
    }
    inputs->push_back(input);
    at += sizeof header + padded(header.bytes);
  }
  return true;
}

}  // namespace softgpu
