#include "link_image.h"

#include <elf.h>

#include "elf_image.h"

namespace softgpu {
namespace {

struct LinkedInput {
  uint64_t bytes;
};

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
