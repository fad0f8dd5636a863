// Reads the image of a module. Layout of ELF files: System V ABI; of NVIDIA's: EM_CUDA is 190, a kernel NAME has a
// section ".text.NAME", and e_flags hold the architecture (bits 0 to 7 up to ABI version 7, bits 8 to 15 from version 8
// on; seen in NVRTC's output).
#include "simulators/cuda/image.h"

#include <elf.h>

#include <cstdlib>
#include <cstring>

namespace sim::cuda {
namespace {

constexpr char kMark[] = "SIMCUBIN\n";

ModuleImage read_text(const char* text) {
  ModuleImage image;
  text += sizeof kMark - 1;
  while (std::strncmp(text, "arch sm_", 8) == 0 || std::strncmp(text, "kernel ", 7) == 0) {
    const char* end = text;
    while (*end != '\n' && *end != '\0') ++end;
    if (text[0] == 'a') {
      image.arch = std::atoi(text + 8);
      image.exact = end[-1] == 'a';
    } else {
      image.kernels.emplace_back(text + 7, end);
    }
    if (*end == '\0') break;
    text = end + 1;
  }
  if (image.arch == 0) image.problem = "no architecture is named";
  return image;
}

ModuleImage read_elf(const char* bytes) {
  ModuleImage image;
  Elf64_Ehdr header;
  std::memcpy(&header, bytes, sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != 190 || header.e_shentsize != sizeof(Elf64_Shdr)) {
    image.problem = "an ELF file, but no cubin";
    return image;
  }
  image.arch =
      static_cast<int>(header.e_ident[EI_ABIVERSION] >= 8 ? header.e_flags >> 8 & 0xff : header.e_flags & 0xff);
  const auto section = [&](unsigned i) {
    Elf64_Shdr s;
    std::memcpy(&s, bytes + header.e_shoff + i * sizeof s, sizeof s);
    return s;
  };
  const char* names = bytes + section(header.e_shstrndx).sh_offset;
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    const std::string name = names + section(i).sh_name;
    if (name.rfind(".text.", 0) == 0) image.kernels.push_back(name.substr(6));
  }
  return image;
}

}  // namespace

ModuleImage read_image(const void* image) {
  const char* bytes = static_cast<const char*>(image);
  if (std::strncmp(bytes, kMark, sizeof kMark - 1) == 0) return read_text(bytes);
  if (std::memcmp(bytes, ELFMAG, SELFMAG) == 0) return read_elf(bytes);
  return {"neither a cubin nor the simulated compiler's text", 0, false, {}};
}

bool runs_on(const ModuleImage& image, int arch) {
  if (image.exact) return image.arch == arch;
  return image.arch / 10 == arch / 10 && image.arch <= arch;
}

}  // namespace sim::cuda
