#include "elf_image.h"

#include <elf.h>

#include <algorithm>
#include <map>

namespace softgpu {
namespace {

#if defined(__aarch64__)
constexpr uint16_t kMachineHost = EM_AARCH64;
#else
constexpr uint16_t kMachineHost = EM_X86_64;
#endif

struct Section {
  std::string_view name;
  Elf64_Shdr header;
  Bytes content;  // empty for SHT_NOBITS
};

CUresult fail(Image* image, const char* problem) {
  image->kind = ImageKind::kBroken;
  image->error = CUDA_ERROR_INVALID_IMAGE;
  image->problem = problem;
  return image->error;
}

bool read_section(Bytes elf, const Elf64_Ehdr& header, uint32_t index, Section* section) {
  const size_t at = header.e_shoff + size_t{index} * sizeof(Elf64_Shdr);
  if (header.e_shoff > elf.size || !elf.read(at, &section->header)) return false;
  if (section->header.sh_type == SHT_NOBITS || section->header.sh_type == SHT_NULL) return true;
  return elf.part(section->header.sh_offset, section->header.sh_size, &section->content);
}

bool read_sections(Bytes elf, const Elf64_Ehdr& header, std::vector<Section>* sections) {
  Section names;
  if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum == 0 ||
      header.e_shstrndx >= header.e_shnum ||
      !read_section(elf, header, header.e_shstrndx, &names)) {
    return false;
  }
  for (uint32_t i = 0; i < header.e_shnum; ++i) {
    Section section;
    if (!read_section(elf, header, i, &section) ||
        !names.content.text(section.header.sh_name, &section.name)) {
      return false;
    }
    sections->push_back(section);
  }
  return true;
}

// Linkers put the section table last, unless a section or the program headers follow.
size_t length_of(const Elf64_Ehdr& header, const std::vector<Section>& sections) {
  size_t end = header.e_shoff + sections.size() * sizeof(Elf64_Shdr);
  end = std::max<size_t>(end, header.e_phoff + size_t{header.e_phnum} * sizeof(Elf64_Phdr));
  for (const Section& section : sections) {
    if (section.content.size == 0) continue;
    end = std::max<size_t>(end, section.header.sh_offset + section.header.sh_size);
  }
  return end;
}

// The loader maps what the program headers declare, so that must be present in the file.
bool loadable(Bytes elf, const Elf64_Ehdr& header, uint64_t address, uint64_t bytes) {
  if (header.e_type != ET_DYN || header.e_phentsize != sizeof(Elf64_Phdr)) return false;
  bool covered = false;
  for (uint32_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (header.e_phoff > elf.size || !elf.read(header.e_phoff + i * sizeof segment, &segment)) {
      return false;
    }
    if (segment.p_type == PT_LOAD || segment.p_type == PT_DYNAMIC) {
      if (!elf.holds(segment.p_offset, segment.p_filesz) || segment.p_memsz < segment.p_filesz) {
        return false;
      }
    }
    if (segment.p_type != PT_LOAD || address < segment.p_vaddr) continue;
    const uint64_t offset = address - segment.p_vaddr;
    covered |= offset <= segment.p_memsz && bytes <= segment.p_memsz - offset;
  }
  return covered;
}

// Visits the attributes of one kernel in `.nv.info.<kernel>`: a format byte, an attribute byte, and
// two bytes that are the value (formats 1 to 3) or the length of what follows (format 4).
template <class Visit>
void for_each_attribute(Bytes info, Visit visit) {
  constexpr uint8_t kSized = 4;
  for (size_t at = 0; info.holds(at, 4);) {
    uint8_t format = 0, attribute = 0;
    uint16_t length = 0;
    info.read(at, &format);
    info.read(at + 1, &attribute);
    info.read(at + 2, &length);
    at += 4;
    Bytes value;
    if (format == kSized && !info.part(at, length, &value)) return;
    if (format == kSized) at += length;
    visit(attribute, value);
  }
}

constexpr uint8_t kAttrMaxThreads = 0x05, kAttrRequiredThreads = 0x10, kAttrFrameBytes = 0x11,
                  kAttrRegisters = 0x2f;

void read_kernel_attributes(Bytes info, KernelTraits* traits) {
  for_each_attribute(info, [&](uint8_t attribute, Bytes value) {
    uint32_t size[3];
    if (!value.read(0, &size)) return;
    if (attribute == kAttrRequiredThreads) memcpy(traits->required_block, size, sizeof size);
    if (attribute == kAttrMaxThreads || attribute == kAttrRequiredThreads) {
      traits->max_threads = size[0] * size[1] * size[2];
    }
  });
}

struct Cubin {
  const std::vector<Section>& sections;
  std::map<uint32_t, std::string> function_of;  // by symbol number
  uint32_t constant_bytes = 0;
};

void read_symbols(Cubin* cubin) {
  for (const Section& table : cubin->sections) {
    if (table.header.sh_type != SHT_SYMTAB || table.header.sh_link >= cubin->sections.size()) {
      continue;
    }
    const Bytes names = cubin->sections[table.header.sh_link].content;
    Elf64_Sym symbol;
    std::string_view name;
    for (uint32_t i = 0; table.content.read(i * sizeof symbol, &symbol); ++i) {
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || !names.text(symbol.st_name, &name)) continue;
      cubin->function_of[i] = name;
    }
  }
}

// `.nv.info` of the whole image: values by the number of the kernel's symbol.
void read_figures(const Cubin& cubin, Bytes info, Image* image) {
  for_each_attribute(info, [&](uint8_t attribute, Bytes value) {
    uint32_t pair[2];
    if (!value.read(0, &pair)) return;
    const auto name = cubin.function_of.find(pair[0]);
    if (name == cubin.function_of.end()) return;
    for (ImageKernel& kernel : image->kernels) {
      if (kernel.name != name->second) continue;
      if (attribute == kAttrRegisters) kernel.traits.registers = pair[1];
      if (attribute == kAttrFrameBytes) kernel.traits.local_bytes = pair[1];
    }
  });
}

bool drop_prefix(std::string_view* name, std::string_view prefix) {
  if (name->substr(0, prefix.size()) != prefix) return false;
  name->remove_prefix(prefix.size());
  return true;
}

ImageKernel* kernel_named(Image* image, std::string_view name) {
  for (ImageKernel& kernel : image->kernels) {
    if (kernel.name == name) return &kernel;
  }
  return nullptr;
}

uint32_t arch_of(const Elf64_Ehdr& header) {
  // This ABI version moved the architecture from the lowest byte to the second.
  constexpr unsigned char kNewAbi = 8;
  const bool moved = header.e_ident[EI_ABIVERSION] >= kNewAbi;
  return (header.e_flags >> (moved ? 8 : 0)) & 0xff;
}

// A cubin made with line information (-lineinfo, -G) holds its PTX, as zero-terminated lines.
std::string ptx_of(const std::vector<Section>& sections) {
  for (const Section& section : sections) {
    if (section.name != ".nv_debug_ptx_txt" || section.content.size == 0) continue;
    std::string text(section.content.data, section.content.size);
    std::replace(text.begin(), text.end(), '\0', '\n');
    return text;
  }
  return "";
}

void read_cubin(const Elf64_Ehdr& header, const std::vector<Section>& sections, Image* image) {
  image->kind = ImageKind::kCubin;
  image->arch = arch_of(header);
  image->embedded_ptx = ptx_of(sections);
  Cubin cubin{sections, {}};
  for (const Section& section : sections) {
    std::string_view name = section.name;
    if (!drop_prefix(&name, ".text.")) continue;
    KernelTraits traits;
    traits.binary_version = traits.ptx_version = image->arch;
    image->kernels.push_back({std::string(name), traits});
  }
  read_symbols(&cubin);
  for (const Section& section : sections) {
    std::string_view name = section.name;
    if (name == ".nv.info") read_figures(cubin, section.content, image);
    if (name == ".nv.constant3") cubin.constant_bytes = uint32_t(section.header.sh_size);
    if (drop_prefix(&name, ".nv.info.")) {
      if (auto* kernel = kernel_named(image, name)) {
        read_kernel_attributes(section.content, &kernel->traits);
      }
    } else if (drop_prefix(&name, ".nv.shared.")) {
      if (auto* kernel = kernel_named(image, name)) {
        kernel->traits.shared_bytes = uint32_t(section.header.sh_size);
      }
    }
  }
  for (ImageKernel& kernel : image->kernels) kernel.traits.constant_bytes = cubin.constant_bytes;
}

}  // namespace

bool find_sections(Bytes elf, std::string_view name, std::vector<Bytes>* found) {
  Elf64_Ehdr header;
  std::vector<Section> sections;
  if (!elf.read(0, &header) || !read_sections(elf, header, &sections)) return false;
  for (const Section& section : sections) {
    if (section.name == name) found->push_back(section.content);
  }
  return true;
}

void inspect_elf(Bytes given, Image* image) {
  Elf64_Ehdr header;
  if (!given.read(0, &header)) return void(fail(image, "the ELF header is cut off"));
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB) {
    return void(fail(image, "not a 64-bit little-endian ELF"));
  }
  std::vector<Section> sections;
  if (!read_sections(given, header, &sections)) {
    return void(fail(image, "a section lies outside of the ELF image"));
  }
  image->bytes = {given.data, length_of(header, sections)};
  if (header.e_machine == kMachineCuda) {
    read_cubin(header, sections, image);
  } else if (header.e_machine != kMachineHost) {
    image->error = CUDA_ERROR_NO_BINARY_FOR_GPU;
    image->problem = "an ELF for another machine";
    return;
  }
  for (const Section& section : sections) {
    if (section.name == kLinkedSection && header.e_machine == kMachineCuda) {
      image->kind = ImageKind::kLinked;
      image->linked = section.content;
    } else if (section.name == ".tandem_kernels" && header.e_machine == kMachineHost) {
      if (!loadable(image->bytes, header, section.header.sh_addr, section.header.sh_size)) {
        return void(fail(image, "the kernel library is cut off"));
      }
      image->kind = ImageKind::kKernelLibrary;
      image->entries_offset = section.header.sh_addr;
      image->entries_bytes = section.header.sh_size;
    }
  }
  if (image->kind == ImageKind::kBroken) {
    image->error = CUDA_ERROR_NO_BINARY_FOR_GPU;
    image->problem = "a host library without TANDEM_KERNEL entries";
  }
}

}  // namespace softgpu
