#include "image.h"

#include <elf.h>

#include <cctype>

#include "elf_image.h"
#include "fatbin.h"
#include "ptx_header.h"

namespace softgpu {
namespace {

// An image of no other kind is taken for PTX if it is text, as the driver's compiler does.
bool looks_like_text(Bytes given) {
  const size_t length = strnlen(given.data, given.size);
  for (size_t i = 0; i < length && i < 64; ++i) {
    const auto c = static_cast<unsigned char>(given.data[i]);
    if (!isprint(c) && !isspace(c)) return false;
  }
  return length > 0;
}

}  // namespace

Image inspect_image(Bytes given) {
  Image image;
  image.bytes = given;
  if (given.size == 0) {
    image.problem = "the image is empty";
  } else if (given.holds(0, SELFMAG) && memcmp(given.data, ELFMAG, SELFMAG) == 0) {
    inspect_elf(given, &image);
  } else if (is_fatbin(given)) {
    image.kind = ImageKind::kFatbin;
  } else if (is_fatbin_wrapper(given)) {
    image.kind = ImageKind::kFatbinWrapper;
  } else if (looks_like_text(given)) {
    inspect_ptx(given, &image);
  } else {
    image.problem = "neither ELF, nor a fat binary, nor PTX";
  }
  return image;
}

}  // namespace softgpu
